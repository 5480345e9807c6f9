//! One way to be traced: a victim of its own, and the tracer beside it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::bpftrace::{self, Bpftrace};
use crate::floor::{AtReturn, Floor};
use crate::heaptrack::Heaptrack;
use crate::libc_copy::LibcCopy;
use crate::memtrace::{Memtrace, Report};
use crate::options::Options;
use crate::probes::{self, Site};
use crate::victim::{FRAMES, Victim, Work};

/// The option by which memtrace is told where to probe.
pub(super) const SITE_OPTION: &str = "--probe-site";

/// One way to be traced, or not to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not at all.
    Bare,
    /// Empty programs where memtrace has its own.
    Floor,
    /// memtrace, taking no stacks.
    WithoutStacks,
    /// memtrace, taking stacks.
    WithStacks,
    /// As [`Kind::WithStacks`], with the probes at the functions' first instruction.
    AtEntry,
    /// bpftrace with a script that keeps the same books.
    Bpftrace,
    /// heaptrack.
    Heaptrack,
}

impl Kind {
    /// As the result names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Floor => "floor",
            Self::WithoutStacks => "memtrace-without-stacks",
            Self::WithStacks => "memtrace",
            Self::AtEntry => "memtrace-at-entry",
            Self::Bpftrace => "bpftrace",
            Self::Heaptrack => "heaptrack",
        }
    }
}

/// A victim that waits for work, and its tracer.
pub(super) struct Running {
    kind: Kind,
    victim: Victim,
    library: PathBuf,
    tracer: Tracer,
}

enum Tracer {
    None,
    Floor(Floor),
    Memtrace(Memtrace),
    Bpftrace(Bpftrace),
    Heaptrack(Heaptrack),
}

/// A tracer whose target has ended.
pub(super) struct Ended {
    kind: Kind,
    tracer: Tracer,
}

impl Running {
    /// Starts both.
    pub(super) fn start(
        kind: Kind,
        libc: &LibcCopy,
        mode: &str,
        processors: &str,
        options: &Options,
        sites: &[Site],
    ) -> Result<Self> {
        let heaptrack = (kind == Kind::Heaptrack).then(|| Heaptrack::start(libc.folder())).transpose()?;
        let environment = heaptrack.as_ref().map(Heaptrack::environment).unwrap_or_default();
        let victim = Victim::start(libc, mode, processors, &environment)?;
        let (pid, library) = (victim.pid(), libc.library());
        let memtrace = |more: &[&str], depth: usize| {
            let depth = depth.to_string();
            let words = [&["--max-depth", &depth], more].concat();
            let report = libc.folder().join("report.json");
            Memtrace::attach(&options.memtrace, pid, &words, report).map(Tracer::Memtrace)
        };
        let tracer = match kind {
            Kind::Bare => Tracer::None,
            Kind::Floor => Tracer::Floor(Floor::place(&options.floor, &library, pid, sites, AtReturn::Nothing)?),
            Kind::WithoutStacks => memtrace(&[], 0)?,
            Kind::WithStacks => memtrace(&[], FRAMES)?,
            Kind::AtEntry => memtrace(&[SITE_OPTION, "entry"], FRAMES)?,
            Kind::Bpftrace => {
                let program = bpftrace::installed().context("bpftrace has gone")?;
                Tracer::Bpftrace(Bpftrace::attach(&program, &library, pid, libc.folder())?)
            }
            Kind::Heaptrack => heaptrack.map_or(Tracer::None, Tracer::Heaptrack),
        };
        Ok(Self { kind, victim, library, tracer })
    }

    /// Where memtrace has its probes of malloc and free; none for all other kinds.
    pub(super) fn sites(&self) -> Result<Vec<Site>> {
        match &self.tracer {
            Tracer::Memtrace(memtrace) => probes::of_pair(memtrace.pid(), &self.library),
            _ => Ok(Vec::new()),
        }
    }

    /// Has the victim do so many pairs.
    pub(super) fn work(&mut self, pairs: u64) -> Result<Work> {
        self.victim.work(pairs).with_context(|| format!("the victim of {} stopped working", self.kind.name()))
    }

    /// Ends the victim.
    pub(super) fn end_target(self) -> Result<Ended> {
        self.victim.finish()?;
        Ok(Ended { kind: self.kind, tracer: self.tracer })
    }
}

impl Ended {
    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Ends the tracer; memtrace's report where it was memtrace.
    pub(super) fn finish(self) -> Result<Option<Report>> {
        match self.tracer {
            Tracer::None => {}
            Tracer::Floor(floor) => drop(floor),
            Tracer::Memtrace(memtrace) => return memtrace.finish().map(Some),
            Tracer::Bpftrace(bpftrace) => bpftrace.finish()?,
            Tracer::Heaptrack(heaptrack) => heaptrack.finish()?,
        }
        Ok(None)
    }
}
