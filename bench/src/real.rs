//! How much slower real programs run when they are traced.
//!
//! Each is started behind a gate, which becomes the program when it is let go: so a tracer can attach before, and the
//! program is our own child, whose beginning and end are seen without asking the tracer.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::child::{Child, Errors};
use crate::faults::{self, Faults};
use crate::heaptrack::{self, Heaptrack};
use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::memtrace::{Memtrace, Report};
use crate::options::Options;
use crate::processors::Processors;
use crate::programs::{self, Program};
use crate::scratch::Scratch;
use crate::statistics::Spread;
use crate::victim;

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Real {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    programs: Vec<Measured>,
    faults: Faults,
    left_out: Vec<LeftOut>,
}

/// One program.
#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    does: &'static str,
    /// Calls that hand out a block, as memtrace counts them, in one run.
    allocations: u64,
    /// Seconds from beginning to end, untraced.
    seconds: Spread,
    memtrace: Traced,
    heaptrack: Option<Traced>,
}

/// One program under one tracer.
#[derive(Debug, Serialize)]
struct Traced {
    seconds: Spread,
    /// Against the untraced run of the same round.
    slowdown: Spread,
    /// Events lost in all rounds, where the tracer tells.
    lost: Option<u64>,
}

/// What could not be measured.
#[derive(Debug, Serialize)]
struct LeftOut {
    name: &'static str,
    reason: String,
}

/// One round of one program, in seconds.
struct Round {
    bare: f64,
    memtrace: f64,
    heaptrack: Option<f64>,
}

/// Measures every program.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Real> {
    let scratch = Scratch::new()?;
    let gate = Gate { libc: LibcCopy::make(scratch.folder("libc")?)?, processors: processors.all() };
    let programs = programs::all(&scratch.folder("programs")?, options.scale)?;
    let mut left_out: Vec<LeftOut> =
        programs::LEFT_OUT.iter().map(|&(name, reason)| LeftOut { name, reason: reason.to_owned() }).collect();
    if !heaptrack::is_installed() {
        left_out.push(LeftOut { name: "heaptrack", reason: String::from("heaptrack is not installed") });
    }
    let programs = programs.iter().map(|program| measure(&gate, program, options)).collect::<Result<_>>()?;
    let faults = faults::run(options, processors, &scratch)?;
    Ok(Real { benchmark: "real", machine: Machine::this(), rounds: options.rounds, programs, faults, left_out })
}

fn measure(gate: &Gate, program: &Program, options: &Options) -> Result<Measured> {
    let mut rounds = Vec::new();
    let (mut allocations, mut lost) = (0, 0);
    for round in 0..options.rounds {
        eprintln!("    {}: round {} of {}", program.name, round + 1, options.rounds);
        let bare = gate.bare(program)?;
        let (memtrace, report) = gate.under_memtrace(program, options)?;
        let heaptrack = heaptrack::is_installed().then(|| gate.under_heaptrack(program)).transpose()?;
        allocations = report.totals.alloc_count;
        lost += report.lost();
        rounds.push(Round { bare, memtrace, heaptrack });
    }
    let traced = |seconds: &dyn Fn(&Round) -> f64, lost| Traced {
        seconds: Spread::of(rounds.iter().map(seconds)),
        slowdown: Spread::of(rounds.iter().map(|round| seconds(round) / round.bare)),
        lost,
    };
    let with_heaptrack = rounds.iter().all(|round| round.heaptrack.is_some());
    Ok(Measured {
        name: program.name,
        does: program.does,
        allocations,
        seconds: Spread::of(rounds.iter().map(|round| round.bare)),
        memtrace: traced(&|round| round.memtrace, Some(lost)),
        heaptrack: with_heaptrack.then(|| traced(&|round| round.heaptrack.unwrap_or(f64::NAN), None)),
    })
}

/// Starts programs, each with the same C library of its own.
struct Gate {
    libc: LibcCopy,
    processors: String,
}

impl Gate {
    fn bare(&self, program: &Program) -> Result<f64> {
        self.start(program, &[])?.run()
    }

    fn under_memtrace(&self, program: &Program, options: &Options) -> Result<(f64, Report)> {
        let waiting = self.start(program, &[])?;
        let report = self.libc.folder().join("report.json");
        let memtrace = Memtrace::attach(&options.memtrace, waiting.pid, &[], report)?;
        let seconds = waiting.run()?;
        Ok((seconds, memtrace.finish()?))
    }

    fn under_heaptrack(&self, program: &Program) -> Result<f64> {
        let heaptrack = Heaptrack::start(self.libc.folder())?;
        let seconds = self.start(program, &heaptrack.environment())?.run()?;
        heaptrack.finish()?;
        Ok(seconds)
    }

    /// The variables are for the program alone: heaptrack's library would take the gate for its target.
    fn start(&self, program: &Program, variables: &[(&str, OsString)]) -> Result<Waiting> {
        let mut command = self.libc.command(&victim::program("gate"));
        command.arg(&self.processors).envs(program.environment.iter().copied());
        if !variables.is_empty() {
            command.arg("env");
        }
        for (name, value) in variables {
            let mut assignment = OsString::from(format!("{name}="));
            assignment.push(value);
            command.arg(assignment);
        }
        command.args(self.libc.words()).args(&program.words);
        let mut child = Child::start(&mut command, Errors::Shown)?;
        let pid = victim::ready(&mut child)?;
        Ok(Waiting { name: program.name, child, pid })
    }
}

/// A program that waits at its gate.
struct Waiting {
    name: &'static str,
    child: Child,
    pid: u32,
}

impl Waiting {
    /// Lets it go; the seconds until its end.
    fn run(mut self) -> Result<f64> {
        let began = Instant::now();
        self.child.tell("")?;
        let (status, _) = self.child.wait().with_context(|| format!("{} cannot be waited for", self.name))?;
        let took = began.elapsed();
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(took.as_secs_f64())
    }
}
