//! Configuration of a run: resolved, without conflicts.

use std::num::NonZeroU32;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_history::has_trends;
use memtrace_host::debuginfod::Servers;
use memtrace_host::kernel::{MapUses, ThreadFilter};
use memtrace_model::{AccountColumn, AccountKeys, EventClass, Metric, PartKeys, Requirement};
use memtrace_object::allocators::UserHooks;
use memtrace_report::{DEFAULT_ROWS, Format};

use crate::options::source::AllocationSource;
use crate::options::tag_functions::TagFunction;
use crate::options::tag_presets::PresetOf;
use crate::options::{ActivityConfig, BlockArgs, HeapArgs, PageArgs, ProbesOf, SamplingRate, TouchArgs, TuningArgs};
use crate::run_kit::config::{Destination, Moment, Output, Recording};
use crate::run_kit::grouping::Grouping;
use crate::targets::select::Target;

/// Number of intervals if a trace with a duration needs intervals for trends only. A trend needs at least eight of them.
const TREND_INTERVALS: u32 = 32;
/// Limits of the length of an interval that only trends need. A trace completes intervals at most ten times a second,
/// and each interval costs time.
const TREND_INTERVAL: Range<Duration> = Duration::from_millis(250)..Duration::from_secs(10);
/// Length of an interval that only trends need, in a trace without a duration.
const DEFAULT_TREND_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) target: Target,
    /// Duration of the trace; `None` to trace until a signal, or until all targets have ended.
    pub(crate) duration: Option<Duration>,
    pub(crate) outputs: Vec<Output>,
    /// Recording to write, if any.
    pub(crate) recording: Option<Recording>,
    /// Interval between two displays of the top sites; `None` to show none during the run.
    pub(crate) every: Option<Duration>,
    /// Interval of the values of memory over time; `None` if no output shows them.
    pub(crate) timeline: Option<Duration>,
    /// Moments of additional heap profiles, in formats that hold several.
    pub(crate) heap_profiles: Vec<Moment>,
    /// Spans, waits and events of threads to trace, if any.
    pub(crate) activity: Option<ActivityConfig>,
    /// Tables of accounts to write instead of reports, if any.
    pub(crate) accounts: Option<AccountReport>,
    /// Traced event classes, each once, in the order of their reports.
    pub(crate) events: Vec<EventClass>,
    /// Metric to draw; `None` selects the default, which depends on whether the processes have
    /// ended.
    pub(crate) metric: Option<Metric>,
    pub(crate) grouping: Grouping,
    pub(crate) heap: HeapArgs,
    /// Rate of the samples that replace the probes of each call; `None` to trace each call.
    pub(crate) sampling: Option<SamplingRate>,
    /// True if code of targets may be changed. Without a rate of samples, code is changed only if the overhead exceeds
    /// its limit, or if a process is demoted.
    pub(crate) allow_patching: bool,
    pub(crate) blocks: BlockArgs,
    pub(crate) pages: PageArgs,
    /// True if page faults are sampled only in processes whose blocks are not sampled.
    pub(crate) pages_of_others: bool,
    pub(crate) touches: TouchArgs,
    pub(crate) tuning: TuningArgs,
    /// Number of rows in lists of the summary; `None` if the user has not given it.
    pub(crate) top: Option<usize>,
    /// Maximum number of ended processes with rows of their own; the others are merged into groups.
    pub(crate) keep_ended: usize,
    /// True to write every stack and process, instead of the largest ones and sums of the others.
    pub(crate) all_stacks: bool,
    /// Number of rings and consumer threads; `None` to derive it from the number of processors.
    pub(crate) shards: Option<NonZeroU32>,
    /// Allocators and functions that the user named, in addition to the recognized ones.
    pub(crate) user_hooks: UserHooks,
    /// Filter of the threads; allocations of other threads are not traced.
    pub(crate) threads: ThreadFilter,
    /// Functions that change the current tag.
    pub(crate) tag_functions: Vec<TagFunction>,
    /// Objects with probes that change the current tag.
    pub(crate) tag_probes: Vec<ProbesOf>,
    /// Preset for the program of the target. The preset adds functions that set tags.
    pub(crate) tag_preset: Option<PresetOf>,
    /// Servers of debug files, which are contacted after the trace.
    pub(crate) debuginfod: Servers,
    /// True to show no progress and no summary on standard error, but only the line `attached` and
    /// errors.
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
            // The thread is a key, so that frees by other threads can be counted.
            Some(accounts) => accounts.parts().union(PartKeys::THREAD),
        }
    }

    /// Returns the optional features of the run that have BPF maps of their own.
    pub(crate) fn map_uses(&self) -> MapUses {
        MapUses {
            tags: self.parts().contains(PartKeys::TAG),
            activity: self.activity.is_some(),
            // USDT probes report the sizes themselves.
            samples: self.heap.source == AllocationSource::Own || self.sampling.is_some() || self.allow_patching,
        }
    }

    /// Returns the number of rows in lists.
    pub(crate) fn rows(&self) -> usize {
        self.top.unwrap_or(DEFAULT_ROWS)
    }

    /// Returns true if the report of this class has trends. Trends of blocks are for blocks of any age, so they do not fit
    /// `--older`.
    pub(crate) fn has_trends(&self, class: EventClass) -> bool {
        has_trends(class) && !(self.blocks.older.is_some() && class.probes_allocators())
    }

    /// Returns the length of an interval if the run has intervals for trends only; `None` if it needs none, or has others.
    pub(crate) fn trend_interval(&self) -> Option<Duration> {
        let has_others = self.views_moments() || self.every.or(self.timeline).is_some();
        let is_shown = !self.quiet || self.outputs.iter().any(|output| output.format.shows_trends());
        let has_trends = self.accounts.is_none() && self.events.iter().any(|&class| self.has_trends(class));
        if has_others || !is_shown || !has_trends {
            return None;
        }
        let Range { start: shortest, end: longest } = TREND_INTERVAL;
        let of_duration = self.duration.map(|duration| (duration / TREND_INTERVALS).clamp(shortest, longest));
        Some(of_duration.unwrap_or(DEFAULT_TREND_INTERVAL))
    }

    /// Returns true if probes of each call are attached to allocators.
    pub(crate) fn probes_allocators(&self) -> bool {
        let traces_calls = self.heap.source.attaches_probes() && self.sampling.is_none();
        self.follows(EventClass::probes_allocators) && traces_calls
    }

    /// Returns true if heap profiles that targets keep are read. They have neither ages nor threads of blocks.
    pub(crate) fn reads_own_profiles(&self) -> bool {
        let filters_blocks = self.blocks.older.is_some() || self.threads != ThreadFilter::default();
        self.follows(EventClass::probes_allocators) && self.heap.source.reads_own() && !filters_blocks
    }

    /// Returns true if `fact` holds for one of the traced event classes.
    #[must_use]
    pub(crate) fn follows(&self, fact: fn(EventClass) -> bool) -> bool {
        self.events.iter().any(|&class| fact(class))
    }
}

/// Table of accounts, which a run writes instead of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountReport {
    pub(crate) keys: AccountKeys,
    pub(crate) outputs: Vec<Output>,
    pub(crate) sort: AccountColumn,
    /// Interval between two displays of the table; `None` to show it only at the end.
    pub(crate) refresh: Option<Duration>,
    /// Path of the socket for requests; `None` selects a socket in the user's directory.
    pub(crate) socket: Option<PathBuf>,
    /// True if targets set the tags.
    pub(crate) has_program_tags: bool,
    /// Interval of the values of accounts over time.
    pub(crate) interval: Duration,
}

impl Config {
    /// Returns true if earlier heap profiles can be shown: at marks of a recording, or at chosen
    /// moments.
    pub(crate) const fn shows_heap_profiles(&self) -> bool {
        self.recording.is_some() || !self.heap_profiles.is_empty()
    }

    /// Returns true if something shows moments before the end: a recording, heap profiles, or accounts over time.
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

    /// Returns true if the accounts are derived from the totals of stacks at the end, because a key depends on stacks.
    pub(crate) fn needs_stacks(&self) -> bool {
        self.keys.iter().any(|key| key.needs_stacks(self.has_program_tags))
    }
}
