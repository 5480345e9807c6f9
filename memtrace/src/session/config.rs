//! What a run is asked to do: resolved and free of contradictions.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::allocators::UserHooks;
use crate::model::{Bytes, EventClass, FilterRule, GroupBy, Metric, Pid};
use crate::report::Format;

/// What a run is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Who is traced.
    pub target: Target,
    /// How long; `None`: until a signal or the target's end.
    pub duration: Option<Duration>,
    /// Where the profile is written, and how.
    pub outputs: Vec<Output>,
    /// Which events are followed, each class once, in the order of their reports.
    pub events: Vec<EventClass>,
    /// Page faults are told of, of one page in so many.
    pub page_sample: NonZeroU32,
    /// What is drawn.
    pub metric: Metric,
    /// Allocations below this are filtered in the kernel.
    pub min_size: Option<Bytes>,
    /// Allocations above this are filtered in the kernel.
    pub max_size: Option<Bytes>,
    /// Live numbers count only blocks that have lived at least this long.
    pub older: Option<Duration>,
    /// What stacks are put together under.
    pub by: GroupBy,
    /// How many sites, and how many processes, the summary lists.
    pub top: usize,
    /// How many frames a stack may have; 0: no stacks.
    pub max_depth: u32,
    /// How many rings and consumer threads; `None`: chosen by the number of processors.
    pub shards: Option<NonZeroU32>,
    /// The size of each ring, a power of two and a multiple of the page size.
    pub ring_size: Bytes,
    /// Which instruction of each function is probed.
    pub probe_site: ProbeSite,
    /// Allocators and functions that are traced beside those that are found.
    pub wanted: UserHooks,
    /// How many live blocks the books may hold, all shards together.
    pub max_live: u64,
    /// The most by which the target may become slower; `None`: whatever it is.
    pub max_overhead: Option<Percent>,
    /// Neither progress nor summary on standard error; the `attached` line and errors still go there.
    pub quiet: bool,
}

impl Config {
    /// Returns true if `fact` holds for one of the traced event classes.
    #[must_use]
    pub fn follows(&self, fact: fn(EventClass) -> bool) -> bool {
        self.events.iter().any(|&class| fact(class))
    }
}

/// Which instruction of each hooked function is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeSite {
    /// The first that the kernel emulates, where it was proven to be as good as the entry.
    #[default]
    Best,
    /// The entry.
    Entry,
}

/// Hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u32);

impl Percent {
    /// As a share, 1 for the whole.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

/// Who is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Processes that are already running.
    Pids {
        /// Which.
        pids: Vec<Pid>,
        /// Whether the processes that they start are traced too.
        children: bool,
    },
    /// A command to start, its program first.
    Command {
        /// The program and its arguments.
        argv: Vec<OsString>,
        /// Whether the run's exit code is the command's.
        pass_exit_code: bool,
        /// Whether the processes that it starts are traced too.
        children: bool,
    },
    /// All processes, or those that have something in common, those that start later among them.
    Selected(Vec<FilterRule>),
}

/// One file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where.
    pub destination: Destination,
    /// How.
    pub format: Format,
}

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A file, replaced when the report is complete.
    File(PathBuf),
}
