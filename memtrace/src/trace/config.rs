//! Configuration of a run: resolved, without conflicts.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_host::debuginfod::Servers;
use memtrace_host::kernel::{MapUses, ThreadFilter};
use memtrace_model::{
    AccountColumn, AccountKeys, Bytes, EventClass, Metric, PartKeys, Requirement, TagEffect, TagValue,
};
use memtrace_object::allocators::UserHooks;
use memtrace_report::Format;

use crate::run_kit::config::{Destination, Moment, Output, Recording};
use crate::run_kit::grouping::Grouping;
use crate::targets::select::{ProbeSite, Target};

/// Configuration of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) target: Target,
    /// `None` to trace until a signal or the end of the target.
    pub(crate) duration: Option<Duration>,
    pub(crate) outputs: Vec<Output>,
    /// `None` to record nothing.
    pub(crate) recording: Option<Recording>,
    /// Interval at which the top sites are shown; `None` for none.
    pub(crate) every: Option<Duration>,
    /// Interval of the values of memory over time; `None` if no output shows them.
    pub(crate) timeline: Option<Duration>,
    /// Moments of additional heap profiles in formats with several of them.
    pub(crate) heap_profiles: Vec<Moment>,
    /// Spans, waits and events of threads to trace; `None` for none.
    pub(crate) activity: Option<ActivityConfig>,
    /// Accounts to write instead of reports; `None` for none.
    pub(crate) accounts: Option<AccountReport>,
    /// The traced event classes, each once, in the order of their reports.
    pub(crate) events: Vec<EventClass>,
    /// One page in this number is traced.
    pub(crate) page_sample: NonZeroU32,
    /// Metric to draw; `None` for the default, which depends on whether the processes have ended.
    pub(crate) metric: Option<Metric>,
    /// Smaller allocations are filtered in the kernel.
    pub(crate) min_size: Option<Bytes>,
    /// Larger allocations are filtered in the kernel.
    pub(crate) max_size: Option<Bytes>,
    /// Minimum age of blocks that count as live.
    pub(crate) older: Option<Duration>,
    /// Time after which memory that is not touched is cold; `None` to measure no touches.
    pub(crate) cold_after: Option<Duration>,
    /// Count the sizes, lifetimes and ages of blocks.
    pub(crate) lifetimes: bool,
    /// Grouping of stacks.
    pub(crate) grouping: Grouping,
    /// Number of sites, and of processes, in the summary.
    pub(crate) top: usize,
    /// Number of ended processes with rows of their own; the others are merged into groups.
    pub(crate) keep_ended: usize,
    /// Write every stack and process, instead of the largest and sums of the others.
    pub(crate) all_stacks: bool,
    /// The most frames of a stack; 0 for no stacks.
    pub(crate) max_depth: u32,
    /// Number of rings and consumer threads; `None` to derive it from the number of processors.
    pub(crate) shards: Option<NonZeroU32>,
    /// Size of each ring: a power of two and a multiple of the page size.
    pub(crate) ring_size: Bytes,
    pub(crate) probe_site: ProbeSite,
    /// Allocators and functions to trace in addition to those that are found.
    pub(crate) user_hooks: UserHooks,
    /// Threads whose allocations are traced.
    pub(crate) threads: ThreadFilter,
    /// Functions that change the current tag.
    pub(crate) tag_functions: Vec<TagFunction>,
    /// Objects whose probes change the current tag.
    pub(crate) tag_probes: Vec<ProbesOf>,
    pub(crate) sizes: BlockSizes,
    /// The most live blocks in the ledgers of all shards.
    pub(crate) max_live: u64,
    /// Servers of debug files, which are contacted after the trace.
    pub(crate) debuginfod: Servers,
    /// The most memory of memtrace and its maps; `None` to adapt to the limits of its cgroup.
    pub(crate) memory_limit: Option<Bytes>,
    /// The most additional processor time of the target; `None` for no limit.
    pub(crate) max_overhead: Option<Percent>,
    /// Exempt memtrace from the OOM killer, and lock its memory.
    pub(crate) protect: bool,
    /// Neither progress nor summary on standard error, only the `attached` line and errors.
    pub(crate) quiet: bool,
}

impl Config {
    /// Returns true if the peaks of processes are kept.
    pub(crate) fn keeps_peaks(&self) -> bool {
        self.metric.is_some_and(|metric| metric.needs(Requirement::Peaks))
    }

    /// Returns the keys of the parts that the reports need.
    #[must_use]
    pub(crate) fn parts(&self) -> PartKeys {
        match &self.accounts {
            None => self.grouping.parts(),
            // Frees by other threads are counted.
            Some(accounts) => accounts.parts().union(PartKeys::THREAD),
        }
    }

    /// Returns the optional parts of the run that have BPF maps of their own.
    pub(crate) fn map_uses(&self) -> MapUses {
        MapUses { tags: self.parts().contains(PartKeys::TAG), activity: self.activity.is_some() }
    }

    /// Returns true if `fact` holds for one of the traced event classes.
    #[must_use]
    pub(crate) fn follows(&self, fact: fn(EventClass) -> bool) -> bool {
        self.events.iter().any(|&class| fact(class))
    }
}

/// Sizes that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BlockSizes {
    /// The size that the program has asked for.
    #[default]
    Requested,
    /// The size that the allocator has reserved for the program, as `malloc_usable_size` returns it.
    Usable,
}

impl BlockSizes {
    /// All sizes, in the order of the help.
    pub(crate) const ALL: &[Self] = &[Self::Requested, Self::Usable];

    /// Name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Usable => "usable",
        }
    }
}

/// A number of hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Percent(pub(crate) u32);

impl Percent {
    /// Returns the share, 1 for the whole.
    #[must_use]
    pub(crate) fn share(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

/// A table of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountReport {
    pub(crate) keys: AccountKeys,
    pub(crate) outputs: Vec<Output>,
    pub(crate) sort: AccountColumn,
    /// Interval at which the table is shown; `None` for the end only.
    pub(crate) refresh: Option<Duration>,
    /// Socket for requests; `None` for one in the directory of the user.
    pub(crate) socket: Option<PathBuf>,
    /// Tags are those that programs set.
    pub(crate) has_program_tags: bool,
    /// Interval of the accounts over time.
    pub(crate) interval: Duration,
}

impl Config {
    /// Returns true if outputs with several moments show heap profiles at some of them.
    pub(crate) const fn shows_heap_profiles(&self) -> bool {
        self.recording.is_some() || !self.heap_profiles.is_empty()
    }

    /// Returns true if something shows other moments than the end: a recording, heap profiles, or accounts over time.
    pub(crate) fn views_moments(&self) -> bool {
        self.shows_heap_profiles() || self.accounts.as_ref().is_some_and(AccountReport::is_over_time)
    }
}

impl AccountReport {
    /// Returns the keys of the parts that have accounts.
    pub(crate) fn parts(&self) -> PartKeys {
        let tag = if self.has_program_tags { PartKeys::TAG } else { PartKeys::NONE };
        self.keys.iter().fold(tag, |parts, key| parts.union(key.parts()))
    }

    /// Returns true if the text goes to standard output.
    pub(crate) fn shows_text(&self) -> bool {
        let shown = Output { destination: Destination::Stdout, format: Format::Text };
        self.outputs.contains(&shown)
    }

    /// Returns true if an output shows accounts over time.
    pub(crate) fn is_over_time(&self) -> bool {
        self.outputs.iter().any(|output| output.format.shows_accounts_over_time())
    }

    /// Returns true if groups depend on stacks, so that the accounts follow from the totals of stacks at the end.
    pub(crate) fn needs_stacks(&self) -> bool {
        self.keys.iter().any(|key| key.needs_stacks(self.has_program_tags))
    }
}

/// A function that changes the current tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagFunction {
    /// The executable or library; `None` for each object of the targets with this function.
    pub(crate) object: Option<PathBuf>,
    /// Its symbol, or its demangled name.
    pub(crate) name: String,
    pub(crate) effect: TagEffect,
}

impl TagFunction {
    /// Returns the name of the function, with that of its file if it is given.
    pub(crate) fn text(&self) -> String {
        match &self.object {
            Some(object) => format!("{}:{}", object.to_string_lossy(), self.name),
            None => self.name.clone(),
        }
    }
}

/// Activity of threads to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActivityConfig {
    /// Objects whose probes of `memtrace.h` begin and end tasks, name waits for locks, and are events.
    pub(crate) probes: Vec<ProbesOf>,
    /// Functions of which each call is a span.
    pub(crate) functions: Vec<SpanFunction>,
    /// Shortest wait for a futex; `None` to trace none.
    pub(crate) min_wait: Option<Duration>,
    /// Shortest call of an allocator function; `None` to time no calls.
    pub(crate) min_call: Option<Duration>,
}

/// Objects of which the probes of `memtrace.h` are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbesOf {
    /// The executable or library; `None` for all objects of the targets.
    pub(crate) object: Option<PathBuf>,
}

/// A function of which each call is a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanFunction {
    /// The executable or library.
    pub(crate) object: PathBuf,
    /// Its symbol, or its demangled name.
    pub(crate) name: String,
    /// Number and kind of the argument that labels each span.
    pub(crate) label: Option<(u8, TagValue)>,
}

impl SpanFunction {
    /// Returns the name of the function, with that of its file.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.object.to_string_lossy(), self.name)
    }
}
