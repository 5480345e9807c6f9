//! Configuration of the thread monitor: resolved, without conflicts.

use std::path::PathBuf;
use std::time::Duration;

use memtrace_history::triggers::{Condition, Subject};
use memtrace_model::ThreadColumn;
use memtrace_object::allocators::UserHooks;

use crate::run_kit::config::Recording;
use crate::targets::select::Target;

#[derive(Clone, Debug)]
pub(crate) struct ThreadsConfig {
    pub(crate) target: Target,
    /// Duration of the run; `None` to run until a signal, or until all targets have ended.
    pub(crate) duration: Option<Duration>,
    /// Time between two readings.
    pub(crate) interval: Duration,
    /// True to end after the first interval.
    pub(crate) once: bool,
    /// Format on standard output; `None` to write nothing there.
    pub(crate) output: Option<ThreadsFormat>,
    /// File for a trace for Perfetto, if one is written.
    pub(crate) trace: Option<PathBuf>,
    /// Recording to write, if any.
    pub(crate) recording: Option<Recording>,
    /// Maximum number of threads in a table.
    pub(crate) rows: usize,
    /// Maximum number of threads with values of their own; the values of the others are summed.
    pub(crate) max_threads: usize,
    pub(crate) source: SourceChoice,
    pub(crate) user_hooks: UserHooks,
    /// True to exempt memtrace from the OOM killer, and to lock its memory.
    pub(crate) protect: bool,
    /// Real-time priority (`SCHED_FIFO`) of the sampling thread; `None` for normal scheduling.
    pub(crate) realtime: Option<u8>,
    /// Sort column of tables.
    pub(crate) sort: ThreadColumn,
    /// Conditions of triggers.
    pub(crate) conditions: Vec<Condition>,
    /// Trace that a trigger starts, if any.
    pub(crate) then: Option<TriggeredTrace>,
}

impl ThreadsConfig {
    pub(super) fn has_cgroup_conditions(&self) -> bool {
        self.conditions.iter().any(|condition| condition.subject == Subject::Cgroup)
    }
}

/// Format on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadsFormat {
    Table,
    Csv,
    Json,
}

impl ThreadsFormat {
    /// All formats, ordered as in the help.
    pub(crate) const ALL: &[Self] = &[Self::Table, Self::Csv, Self::Json];

    /// Name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Table => "text",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }
}

/// Origin of the heap counters, as the user has chosen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceChoice {
    /// The counters of the allocator, if it has any, and otherwise probes.
    #[default]
    Auto,
    /// The counters of the allocator.
    Allocator,
    /// Probes.
    Bpf,
}

impl SourceChoice {
    /// All choices, ordered as in the help.
    pub(crate) const ALL: &[Self] = &[Self::Auto, Self::Allocator, Self::Bpf];

    /// Name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Allocator => "allocator",
            Self::Bpf => "bpf",
        }
    }
}

/// Trace of a process that a trigger starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TriggeredTrace {
    pub(crate) duration: Duration,
    pub(crate) directory: PathBuf,
    /// Further options of the trace: `--allow-patching`.
    pub(crate) options: Vec<String>,
}
