//! Measures the slowdown of real programs.
//!
//! The victim `gate` waits until a tracer has attached, and then executes the program. The program is therefore a
//! child of this process, and its time does not include the start of the tracer.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use harness::{Report, Scratch, Victim, socket};
use serde::Serialize;

use crate::children::start_victim;
use crate::faults::{self, Faults};
use crate::heaptrack::{self, Heaptrack};
use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processors::Processors;
use crate::programs::{self, Client, Program};
use crate::statistics::Spread;
use crate::victim;

#[derive(Debug, Serialize)]
pub(crate) struct Real {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    programs: Vec<ProgramResult>,
    faults: Faults,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Serialize)]
struct ProgramResult {
    name: &'static str,
    does: &'static str,
    /// Number of allocations in the last run under memtrace.
    allocations: u64,
    /// Duration without a tracer, in seconds.
    seconds: Spread,
    memtrace: TracerResult,
    /// memtrace with probes at the entry and the return of each function that returns a block.
    at_return: TracerResult,
    heaptrack: Option<TracerResult>,
}

#[derive(Debug, Serialize)]
struct TracerResult {
    seconds: Spread,
    /// Duration, divided by the duration of the untraced run in the same round.
    slowdown: Spread,
    /// Number of lost events in all rounds, if the tracer is memtrace.
    lost: Option<u64>,
}

/// Tracer that was not measured.
#[derive(Debug, Serialize)]
struct LeftOut {
    name: &'static str,
    reason: String,
}

/// Durations of one program in one round, in seconds.
struct Round {
    bare: f64,
    memtrace: f64,
    at_return: f64,
    heaptrack: Option<f64>,
}

/// Measures all programs.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Real> {
    let scratch = Scratch::new();
    let gate = Gate { libc: LibcCopy::make(scratch.subdirectory("libc"))?, processors: processors.all() };
    let programs = programs::all(&scratch.subdirectory("programs"), options.scale)?;
    let mut left_out = Vec::new();
    if !heaptrack::is_installed() {
        left_out.push(LeftOut { name: "heaptrack", reason: String::from("heaptrack is not installed") });
    }
    let programs = programs.iter().map(|program| measure(&gate, program, options)).collect::<Result<_>>()?;
    let faults = faults::run(options, processors, &scratch)?;
    Ok(Real { benchmark: "real", machine: Machine::current(), rounds: options.rounds, programs, faults, left_out })
}

fn measure(gate: &Gate, program: &Program, options: &Options) -> Result<ProgramResult> {
    let mut rounds = Vec::new();
    let (mut allocations, mut lost, mut lost_at_return) = (0, 0, 0);
    for round in 0..options.rounds {
        eprintln!("    {}: round {} of {}", program.name, round + 1, options.rounds);
        let bare = gate.run_untraced(program)?;
        let (memtrace, report) = gate.run_under_memtrace(program, options, &[])?;
        let (at_return, report_at_return) = gate.run_under_memtrace(program, options, &["--probe-site", "return"])?;
        let heaptrack = heaptrack::is_installed().then(|| gate.run_under_heaptrack(program)).transpose()?;
        allocations = report.totals.alloc_count;
        lost += report.total_losses();
        lost_at_return += report_at_return.total_losses();
        rounds.push(Round { bare, memtrace, at_return, heaptrack });
    }
    let traced = |seconds: &dyn Fn(&Round) -> f64, lost| TracerResult {
        seconds: Spread::new(rounds.iter().map(seconds)),
        slowdown: Spread::new(rounds.iter().map(|round| seconds(round) / round.bare)),
        lost,
    };
    let with_heaptrack = rounds.iter().all(|round| round.heaptrack.is_some());
    Ok(ProgramResult {
        name: program.name,
        does: program.does,
        allocations,
        seconds: Spread::new(rounds.iter().map(|round| round.bare)),
        memtrace: traced(&|round| round.memtrace, Some(lost)),
        at_return: traced(&|round| round.at_return, Some(lost_at_return)),
        heaptrack: with_heaptrack.then(|| traced(&|round| round.heaptrack.unwrap_or(f64::NAN), None)),
    })
}

/// Starts programs that wait for a tracer. All programs use the same copy of the C library.
struct Gate {
    libc: LibcCopy,
    processors: String,
}

impl Gate {
    fn run_untraced(&self, program: &Program) -> Result<f64> {
        self.start(program, &[]).run()
    }

    fn run_under_memtrace(&self, program: &Program, options: &Options, words: &[&str]) -> Result<(f64, Report)> {
        let gated = self.start(program, &[]);
        let report = self.libc.folder().join("report.json");
        let memtrace = Memtrace::attach(&options.memtrace, gated.victim.pid(), words, report)?;
        let seconds = gated.run()?;
        Ok((seconds, memtrace.finish()?))
    }

    fn run_under_heaptrack(&self, program: &Program) -> Result<f64> {
        let heaptrack = Heaptrack::start(self.libc.folder())?;
        let seconds = self.start(program, &heaptrack.environment()).run()?;
        heaptrack.finish()?;
        Ok(seconds)
    }

    /// Starts the gate with the program. The command `env` sets `variables` for the program only. Otherwise heaptrack's
    /// library would trace the gate too.
    fn start<'program>(
        &'program self,
        program: &'program Program,
        variables: &[(&str, OsString)],
    ) -> GatedProgram<'program> {
        let mut command = self.libc.command(&victim::path("gate"));
        command.arg(&self.processors).envs(program.environment.iter().copied());
        if !variables.is_empty() {
            command.arg("env");
        }
        for (name, value) in variables {
            let mut assignment = OsString::from(format!("{name}="));
            assignment.push(value);
            command.arg(assignment);
        }
        command.args(self.libc.launcher()).args(&program.words);
        GatedProgram { program, processors: &self.processors, victim: start_victim(&mut command) }
    }
}

/// Program that waits at the gate.
struct GatedProgram<'program> {
    program: &'program Program,
    processors: &'program str,
    victim: Victim,
}

impl GatedProgram<'_> {
    /// Opens the gate. Returns the run time of the program, or of its client, in seconds.
    fn run(mut self) -> Result<f64> {
        let start = Instant::now();
        self.victim.process().write_line("");
        let served = self.program.client.as_ref().map(|client| self.serve(client)).transpose()?;
        let status = self.victim.process().wait_with_open_stdin();
        let duration = start.elapsed();
        if !status.success() {
            bail!("{} ended with {status}", self.program.name);
        }
        Ok(served.unwrap_or(duration).as_secs_f64())
    }

    /// Runs the client, and ends the server. Returns the run time of the client.
    fn serve(&mut self, client: &Client) -> Result<Duration> {
        drop(socket::connect(&client.socket));
        // The client shares the processors of the server. On the processor of the tracer, it would delay the tracer.
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", self.processors]).args(&client.words).stdout(Stdio::null());
        let start = Instant::now();
        let status = command.status().context("cannot run the client")?;
        let duration = start.elapsed();
        if !status.success() {
            bail!("the client of {} ended with {status}", self.program.name);
        }
        self.victim.process().signal(libc::SIGTERM);
        Ok(duration)
    }
}
