//! Variants of the benchmark: a victim and its tracer.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use harness::Victim;

use crate::children::start_victim;
use crate::floor::{Floor, ReturnAction};
use crate::libc_copy::LibcCopy;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::probes::{self, Event, Probe, ProbeSite};
use crate::victim::{self, PairTiming};

/// Kind of span of the victim (`victims/spans.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    /// Task, with two probes of `memtrace.h`.
    Task,
    /// Event, with one probe of `memtrace.h`.
    Event,
    /// Lock, with three probes of `memtrace.h`.
    Lock,
    /// Call of a function. The kernel emulates the function's first instruction.
    Call,
    /// Call of a function. The kernel single-steps the function's first instruction.
    Leaf,
    /// Computation without probes, waits and system calls, while memtrace traces waits.
    Compute,
}

impl SpanKind {
    pub(super) const ALL: [Self; 6] = [Self::Task, Self::Event, Self::Lock, Self::Call, Self::Leaf, Self::Compute];

    /// Returns the name of the kind, which is also the name of the function with the probes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Event => "event",
            Self::Lock => "lock",
            Self::Call => "call",
            Self::Leaf => "leaf",
            Self::Compute => "compute",
        }
    }

    /// Returns the variants. memtrace is first, because the floor needs memtrace's probe sites.
    pub(super) const fn variants(self) -> &'static [Kind] {
        match self {
            Self::Call | Self::Leaf => &[Kind::Memtrace, Kind::Bare, Kind::Floor, Kind::Uretprobe],
            Self::Task | Self::Event | Self::Lock => &[Kind::Memtrace, Kind::Bare, Kind::Floor],
            Self::Compute => &[Kind::Memtrace, Kind::Bare],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Untraced.
    Bare,
    /// Minimal BPF programs at memtrace's probe sites.
    Floor,
    /// Minimal BPF programs at the entry of a function, and at its return by a uretprobe.
    Uretprobe,
    Memtrace,
}

impl Kind {
    /// Returns the name in the result.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Floor => "floor",
            Self::Uretprobe => "uretprobe-floor",
            Self::Memtrace => "memtrace",
        }
    }
}

/// Victim that waits for work, and its tracer.
pub(super) struct TracedVictim {
    kind: Kind,
    span: SpanKind,
    victim: Victim,
    program: PathBuf,
    tracer: Tracer,
}

enum Tracer {
    None,
    Floor(Floor),
    Memtrace(Memtrace),
}

/// Tracer after the exit of its victim.
pub(super) struct EndedTracer {
    kind: Kind,
    tracer: Tracer,
}

impl TracedVictim {
    /// Starts the victim and its tracer. The victim's executable and its C library are copies in `folder`, so that no
    /// variant executes the probes of another variant.
    pub(super) fn start(
        kind: Kind,
        span: SpanKind,
        folder: &Path,
        processors: &str,
        options: &Options,
        sites: &[ProbeSite],
    ) -> Result<Self> {
        let libc = LibcCopy::make(folder.to_owned())?;
        let program = folder.join("spans");
        let original = victim::path("spans");
        fs::copy(&original, &program).with_context(|| format!("cannot copy {}", original.display()))?;
        let victim = start_victim(libc.command(&program).args([span.name(), processors]));
        let floor = |sites: &[ProbeSite]| {
            Floor::attach(&options.floor, &program, victim.pid(), sites, ReturnAction::Nothing).map(Tracer::Floor)
        };
        let tracer = match kind {
            Kind::Bare => Tracer::None,
            Kind::Floor => floor(sites)?,
            Kind::Uretprobe => {
                let entry = sites.first().context("memtrace has no probes of the function")?;
                let at_return =
                    ProbeSite { event: Event::Return, probe: Probe { event: Event::Return, ..entry.probe }, ..*entry };
                floor(&[*entry, at_return])?
            }
            Kind::Memtrace => {
                let of_program = |probes: &str| format!("--span={}:{probes}", program.display());
                let option = match span {
                    SpanKind::Call | SpanKind::Leaf => of_program(span.name()),
                    SpanKind::Task | SpanKind::Event | SpanKind::Lock => of_program("probes"),
                    SpanKind::Compute => String::from("--min-wait=1us"),
                };
                let words = ["--max-depth", "0", &option];
                let report = folder.join("report.json");
                Tracer::Memtrace(Memtrace::attach(&options.memtrace, victim.pid(), &words, report)?)
            }
        };
        Ok(Self { kind, span, victim, program, tracer })
    }

    /// Returns memtrace's probe sites in the function of the span. Returns no sites for other tracers.
    pub(super) fn probe_sites(&self) -> Result<Vec<ProbeSite>> {
        match &self.tracer {
            Tracer::Memtrace(_) if self.span == SpanKind::Compute => Ok(Vec::new()),
            Tracer::Memtrace(memtrace) => probes::in_function(memtrace.pid(), &self.program, self.span.name()),
            Tracer::None | Tracer::Floor(_) => Ok(Vec::new()),
        }
    }

    /// Runs `spans` spans in the victim.
    pub(super) fn work(&mut self, spans: u64) -> PairTiming {
        self.victim.process().write_line(&spans.to_string());
        self.victim.read_json()
    }

    pub(super) fn end_victim(mut self) -> EndedTracer {
        self.victim.process().wait();
        EndedTracer { kind: self.kind, tracer: self.tracer }
    }
}

impl EndedTracer {
    pub(super) const fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Ends the tracer. Returns the number of lost events, if the tracer is memtrace.
    pub(super) fn finish(self) -> Result<Option<u64>> {
        match self.tracer {
            Tracer::None => Ok(None),
            Tracer::Floor(floor) => {
                drop(floor);
                Ok(None)
            }
            Tracer::Memtrace(memtrace) => Ok(Some(memtrace.finish()?.total_losses())),
        }
    }
}
