//! Variants of the benchmark: a victim, and a tracer with a timed BPF program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use harness::{Report, Victim};

use super::run_time::RunTime;
use crate::children::start_victim;
use crate::floor::{Floor, ReturnAction};
use crate::libc_copy::LibcCopy;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::probes::{self, Event, ProbeSite};
use crate::victim::{self, PairTiming};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// memtrace with unwind tables. The victim has no frame pointers.
    Tables,
    /// Same as `Tables`, with frames that are not in memtrace's cache, because the functions were not unwound recently.
    Cold,
    /// memtrace without stacks.
    WithoutStacks,
    /// A BPF program that only calls `bpf_get_stack`. The victim has frame pointers.
    Helper,
    /// Empty BPF programs at memtrace's probe sites.
    Empty,
}

impl Kind {
    /// Returns the name in the result.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Cold => "cold",
            Self::WithoutStacks => "without-stacks",
            Self::Helper => "helper",
            Self::Empty => "empty",
        }
    }

    /// Returns the variant that takes stacks of the same victim. It may be this variant. The depth of its stacks is
    /// valid for this variant too.
    pub(super) const fn depth_reference(self) -> Self {
        match self {
            Self::Tables | Self::WithoutStacks | Self::Empty => Self::Tables,
            Self::Cold => Self::Cold,
            Self::Helper => Self::Helper,
        }
    }

    /// Returns the expected stack end in memtrace's report.
    pub(super) const fn stack_end(self) -> &'static str {
        match self {
            Self::Tables | Self::Cold => "complete",
            Self::WithoutStacks | Self::Helper | Self::Empty => "not_taken",
        }
    }

    const fn victim(self) -> &'static str {
        match self {
            Self::Tables | Self::WithoutStacks | Self::Empty => "deep",
            Self::Cold => "cold",
            Self::Helper => "deep-frame-pointers",
        }
    }
}

/// Victim that waits for work, and its tracer.
pub(super) struct TracedVictim {
    kind: Kind,
    victim: Victim,
    library: PathBuf,
    tracer: Tracer,
    /// Id of the BPF program at malloc's return.
    program: u32,
    /// Number of executed pairs, by number of nested functions.
    pairs: BTreeMap<usize, u64>,
}

enum Tracer {
    Memtrace(Memtrace),
    Floor(Floor),
}

/// Tracer after the exit of its victim.
pub(super) struct EndedTracer {
    kind: Kind,
    tracer: Tracer,
    pairs: BTreeMap<usize, u64>,
}

impl TracedVictim {
    pub(super) fn start(
        kind: Kind,
        libc: &LibcCopy,
        processors: &str,
        options: &Options,
        sites: &[ProbeSite],
    ) -> Result<Self> {
        let victim = start_victim(libc.command(&victim::path(kind.victim())).arg(processors));
        let pid = victim.pid();
        let library = libc.library();
        let floor = |return_action| {
            let floor = Floor::attach(&options.floor, &library, pid, sites, return_action)?;
            let program = floor.return_program_id()?;
            Ok::<_, anyhow::Error>((Tracer::Floor(floor), program))
        };
        let memtrace = |words: &[&str]| {
            // With this option, the BPF program at malloc's return takes the stacks.
            let words = [&["--probe-site", "return"], words].concat();
            let memtrace = Memtrace::attach(&options.memtrace, pid, &words, libc.folder().join("report.json"))?;
            let sites = probes::malloc_and_free(memtrace.pid(), &library)?;
            let at_return = sites.iter().find(|site| site.event == Event::Return);
            let program = at_return.context("memtrace has no probe on malloc's return")?.probe.program;
            Ok::<_, anyhow::Error>((Tracer::Memtrace(memtrace), program))
        };
        let (tracer, program) = match kind {
            Kind::Empty => floor(ReturnAction::Nothing)?,
            Kind::Helper => floor(ReturnAction::WalkStack)?,
            Kind::WithoutStacks => memtrace(&["--max-depth", "0"])?,
            Kind::Tables | Kind::Cold => memtrace(&[])?,
        };
        Ok(Self { kind, victim, library, tracer, program, pairs: BTreeMap::new() })
    }

    /// Returns memtrace's probe sites in malloc and free. Returns no sites for other tracers.
    pub(super) fn probe_sites(&self) -> Result<Vec<ProbeSite>> {
        match &self.tracer {
            Tracer::Memtrace(memtrace) => probes::malloc_and_free(memtrace.pid(), &self.library),
            Tracer::Floor(_) => Ok(Vec::new()),
        }
    }

    /// Runs `pairs` pairs of malloc and free in the victim, inside `nested` nested functions. Returns the time that the
    /// victim has measured, and the run time of the BPF program.
    pub(super) fn work(&mut self, nested: usize, pairs: u64) -> Result<(PairTiming, RunTime)> {
        let before = RunTime::read(self.program)?;
        self.victim.process().write_line(&nested.to_string());
        self.victim.process().write_line(&pairs.to_string());
        let timing = self.victim.read_json();
        let run_time = RunTime::read(self.program)?.since(before);
        if run_time.runs() != pairs {
            bail!("the BPF program at malloc's return ran {} times for {pairs} pairs", run_time.runs());
        }
        *self.pairs.entry(nested).or_insert(0) += pairs;
        Ok((timing, run_time))
    }

    /// Returns the depth of the last stack from `bpf_get_stack`. Returns `None` for other variants.
    pub(super) fn frame_count(&self) -> Result<Option<usize>> {
        match &self.tracer {
            Tracer::Memtrace(_) => Ok(None),
            Tracer::Floor(floor) => floor.frame_count(),
        }
    }

    pub(super) fn end_victim(mut self) -> EndedTracer {
        self.victim.process().wait();
        EndedTracer { kind: self.kind, tracer: self.tracer, pairs: self.pairs }
    }
}

impl EndedTracer {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of executed pairs, by number of nested functions.
    pub(super) fn pairs(&self) -> &BTreeMap<usize, u64> {
        &self.pairs
    }

    /// Ends the tracer. Returns the report, if the tracer is memtrace.
    pub(super) fn finish(self) -> Result<Option<Report>> {
        match self.tracer {
            Tracer::Floor(floor) => {
                drop(floor);
                Ok(None)
            }
            Tracer::Memtrace(memtrace) => memtrace.finish().map(Some),
        }
    }
}
