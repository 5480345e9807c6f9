//! Variants of the benchmark: a victim and its tracer.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use harness::{Report, Victim};

use crate::bpftrace::{self, Bpftrace};
use crate::children::start_victim;
use crate::floor::{Floor, ReturnAction};
use crate::heaptrack::Heaptrack;
use crate::libc_copy::LibcCopy;
use crate::memtrace::{Memtrace, ThreadsCommand};
use crate::options::Options;
use crate::probes::{self, ProbeSite};
use crate::victim::{self, FRAMES, PairTiming};

/// Option of memtrace that selects the probe sites.
pub(super) const SITE_OPTION: &str = "--probe-site";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Untraced.
    Bare,
    /// Minimal BPF programs at memtrace's probe sites.
    Floor,
    /// memtrace without stacks.
    WithoutStacks,
    /// memtrace with stacks.
    WithStacks,
    /// Minimal BPF programs at the probe sites of [`Kind::AtReturn`].
    ReturnFloor,
    /// Same as [`Kind::WithoutStacks`], with probes at the entry and the return of malloc.
    AtReturnWithoutStacks,
    /// Same as [`Kind::WithStacks`], with probes at the entry and the return of malloc.
    AtReturn,
    /// Same as [`Kind::AtReturn`], with probes on the first instruction of each function.
    AtEntry,
    /// bpftrace with an equivalent script.
    Bpftrace,
    Heaptrack,
    /// Minimal BPF programs at the probe sites of [`Kind::Threads`].
    ThreadsFloor,
    /// `memtrace threads`, which counts blocks without recording them.
    Threads,
}

impl Kind {
    /// Returns the name in the result.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Floor => "floor",
            Self::WithoutStacks => "memtrace-without-stacks",
            Self::WithStacks => "memtrace",
            Self::ReturnFloor => "return-floor",
            Self::AtReturnWithoutStacks => "memtrace-at-return-without-stacks",
            Self::AtReturn => "memtrace-at-return",
            Self::AtEntry => "memtrace-at-entry",
            Self::Bpftrace => "bpftrace",
            Self::Heaptrack => "heaptrack",
            Self::ThreadsFloor => "threads-floor",
            Self::Threads => "memtrace-threads",
        }
    }

    /// Returns the variant with minimal BPF programs to which this variant is compared.
    pub(super) const fn floor(self) -> Self {
        match self {
            Self::ThreadsFloor | Self::Threads => Self::ThreadsFloor,
            Self::ReturnFloor | Self::AtReturnWithoutStacks | Self::AtReturn => Self::ReturnFloor,
            _ => Self::Floor,
        }
    }

    /// Returns true if minimal BPF programs use the probe sites of this variant.
    pub(super) const fn has_sites_of_floor(self) -> bool {
        matches!(self, Self::WithoutStacks | Self::AtReturn | Self::Threads)
    }
}

/// Victim that waits for work, and its tracer.
pub(super) struct TracedVictim {
    kind: Kind,
    victim: Victim,
    library: PathBuf,
    tracer: Tracer,
}

enum Tracer {
    None,
    Floor(Floor),
    Memtrace(Memtrace),
    Threads(ThreadsCommand),
    Bpftrace(Bpftrace),
    Heaptrack(Heaptrack),
}

/// Tracer after the exit of its victim.
pub(super) struct EndedTracer {
    kind: Kind,
    tracer: Tracer,
}

impl TracedVictim {
    pub(super) fn start(
        kind: Kind,
        libc: &LibcCopy,
        mode: &str,
        processors: &str,
        options: &Options,
        sites: &[ProbeSite],
    ) -> Result<Self> {
        let heaptrack = (kind == Kind::Heaptrack).then(|| Heaptrack::start(libc.folder())).transpose()?;
        let environment = heaptrack.as_ref().map(Heaptrack::environment).unwrap_or_default();
        let victim = start_victim(libc.command(&victim::path("pairs")).args([mode, processors]).envs(environment));
        let (pid, library) = (victim.pid(), libc.library());
        let memtrace = |more: &[&str], depth: usize| {
            let depth = depth.to_string();
            let words = [&["--max-depth", &depth], more].concat();
            let report = libc.folder().join("report.json");
            Memtrace::attach(&options.memtrace, pid, &words, report).map(Tracer::Memtrace)
        };
        let tracer = match kind {
            Kind::Bare => Tracer::None,
            Kind::Floor | Kind::ReturnFloor | Kind::ThreadsFloor => {
                Tracer::Floor(Floor::attach(&options.floor, &library, pid, sites, ReturnAction::Nothing)?)
            }
            Kind::Threads => Tracer::Threads(ThreadsCommand::attach(&options.memtrace, pid)?),
            Kind::WithoutStacks => memtrace(&[], 0)?,
            Kind::WithStacks => memtrace(&[], FRAMES)?,
            Kind::AtReturnWithoutStacks => memtrace(&[SITE_OPTION, "return"], 0)?,
            Kind::AtReturn => memtrace(&[SITE_OPTION, "return"], FRAMES)?,
            Kind::AtEntry => memtrace(&[SITE_OPTION, "entry"], FRAMES)?,
            Kind::Bpftrace => {
                let program = bpftrace::find().context("bpftrace is no longer installed")?;
                Tracer::Bpftrace(Bpftrace::attach(&program, &library, pid, libc.folder())?)
            }
            Kind::Heaptrack => heaptrack.map_or(Tracer::None, Tracer::Heaptrack),
        };
        Ok(Self { kind, victim, library, tracer })
    }

    /// Returns memtrace's probe sites in malloc and free. Returns `None` if no variant with minimal BPF programs uses
    /// these sites.
    pub(super) fn sites_of_floor(&self) -> Result<Option<Vec<ProbeSite>>> {
        let pid = match &self.tracer {
            Tracer::Memtrace(memtrace) => memtrace.pid(),
            Tracer::Threads(threads) => threads.pid(),
            _ => return Ok(None),
        };
        self.kind.has_sites_of_floor().then(|| probes::malloc_and_free(pid, &self.library)).transpose()
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Runs `pairs` pairs of malloc and free in the victim.
    pub(super) fn work(&mut self, pairs: u64) -> PairTiming {
        self.victim.process().write_line(&pairs.to_string());
        self.victim.read_json()
    }

    pub(super) fn end_victim(mut self) -> EndedTracer {
        self.victim.process().wait();
        EndedTracer { kind: self.kind, tracer: self.tracer }
    }
}

impl EndedTracer {
    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Ends the tracer. Returns the report, if the tracer is memtrace.
    pub(super) fn finish(self) -> Result<Option<Report>> {
        match self.tracer {
            Tracer::None => {}
            Tracer::Floor(floor) => drop(floor),
            Tracer::Memtrace(memtrace) => return memtrace.finish().map(Some),
            Tracer::Threads(threads) => threads.finish()?,
            Tracer::Bpftrace(bpftrace) => bpftrace.finish(),
            Tracer::Heaptrack(heaptrack) => heaptrack.finish()?,
        }
        Ok(None)
    }
}
