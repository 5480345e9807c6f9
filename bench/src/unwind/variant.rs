//! One way to take stacks: a victim of its own, and the program that is timed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::program::Account;
use crate::child::{Child, Errors};
use crate::floor::{AtReturn, Floor};
use crate::libc_copy::LibcCopy;
use crate::memtrace::{Memtrace, Report};
use crate::options::Options;
use crate::probes::{self, Event, Site};
use crate::victim::{self, Work};

/// One way to take stacks, or not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// memtrace by unwind tables, of a program without frame pointers.
    Tables,
    /// As `Tables`, of a program whose frames have not been met for long.
    Cold,
    /// memtrace without stacks.
    WithoutStacks,
    /// `bpf_get_stack` alone, of a program with frame pointers.
    Helper,
    /// Empty programs where memtrace has its own.
    Empty,
}

impl Kind {
    /// As the result names it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Cold => "cold",
            Self::WithoutStacks => "without-stacks",
            Self::Helper => "helper",
            Self::Empty => "empty",
        }
    }

    /// The variant that sees the stacks of the same victim; itself where it is one.
    pub(super) const fn seen_by(self) -> Self {
        match self {
            Self::Tables | Self::WithoutStacks | Self::Empty => Self::Tables,
            Self::Cold => Self::Cold,
            Self::Helper => Self::Helper,
        }
    }

    /// How its stacks end, as memtrace's report says it.
    pub(super) const fn end(self) -> &'static str {
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

/// A victim that waits for work, and whoever has probed it.
pub(super) struct Running {
    kind: Kind,
    child: Child,
    library: PathBuf,
    tracer: Tracer,
    /// The id of the program at malloc's return.
    program: u32,
    /// How many pairs it did, by how many functions there were between it and those around.
    told: BTreeMap<usize, u64>,
}

enum Tracer {
    Memtrace(Memtrace),
    Floor(Floor),
}

/// A tracer whose target has ended.
pub(super) struct Ended {
    kind: Kind,
    tracer: Tracer,
    told: BTreeMap<usize, u64>,
}

impl Running {
    /// Starts both.
    pub(super) fn start(
        kind: Kind,
        libc: &LibcCopy,
        processors: &str,
        options: &Options,
        sites: &[Site],
    ) -> Result<Self> {
        let mut command = libc.command(&victim::program(kind.victim()));
        let mut child = Child::start(command.arg(processors), Errors::Shown)?;
        let pid = victim::ready(&mut child)?;
        let library = libc.library();
        let place = |at_return| {
            let floor = Floor::place(&options.floor, &library, pid, sites, at_return)?;
            let program = floor.at_return()?;
            Ok::<_, anyhow::Error>((Tracer::Floor(floor), program))
        };
        let attach = |words: &[&str]| {
            let memtrace = Memtrace::attach(&options.memtrace, pid, words, libc.folder().join("report.json"))?;
            let sites = probes::of_pair(memtrace.pid(), &library)?;
            let at_return = sites.iter().find(|site| site.event == Event::Return);
            let program = at_return.context("memtrace has not probed malloc's return")?.probe.program;
            Ok::<_, anyhow::Error>((Tracer::Memtrace(memtrace), program))
        };
        let (tracer, program) = match kind {
            Kind::Empty => place(AtReturn::Nothing)?,
            Kind::Helper => place(AtReturn::Stack)?,
            Kind::WithoutStacks => attach(&["--max-depth", "0"])?,
            Kind::Tables | Kind::Cold => attach(&[])?,
        };
        Ok(Self { kind, child, library, tracer, program, told: BTreeMap::new() })
    }

    /// Where memtrace has its probes of malloc and free; none where it is not memtrace.
    pub(super) fn sites(&self) -> Result<Vec<Site>> {
        match &self.tracer {
            Tracer::Memtrace(memtrace) => probes::of_pair(memtrace.pid(), &self.library),
            Tracer::Floor(_) => Ok(Vec::new()),
        }
    }

    /// Has the victim do so many pairs, `deeper` functions deep; says how long they took it, and what the program took.
    pub(super) fn work(&mut self, deeper: usize, pairs: u64) -> Result<(Work, Account)> {
        let before = Account::of(self.program)?;
        self.child.tell(&deeper.to_string())?;
        self.child.tell(&pairs.to_string())?;
        let work = serde_json::from_str(&self.child.line()?).context("the victim speaks in riddles")?;
        let account = Account::of(self.program)?.since(before);
        if account.runs() != pairs {
            bail!("for {pairs} pairs the program at malloc's return ran {} times", account.runs());
        }
        *self.told.entry(deeper).or_insert(0) += pairs;
        Ok((work, account))
    }

    /// How many frames the last stack had, where it was the floor that took it.
    pub(super) fn frames(&self) -> Result<Option<usize>> {
        match &self.tracer {
            Tracer::Memtrace(_) => Ok(None),
            Tracer::Floor(floor) => floor.frames(),
        }
    }

    /// Ends the victim.
    pub(super) fn end_target(mut self) -> Result<Ended> {
        self.child.close_input();
        self.child.wait()?;
        Ok(Ended { kind: self.kind, tracer: self.tracer, told: self.told })
    }
}

impl Ended {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// How many pairs the victim did, by how many functions there were between them and those around.
    pub(super) fn told(&self) -> &BTreeMap<usize, u64> {
        &self.told
    }

    /// Ends the tracer; memtrace's report where it was memtrace.
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
