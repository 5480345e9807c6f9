//! Reading of all counters at a moment.

use std::time::Duration;

use memtrace_host::kernel::{ProcessStart, RunningThread, ThreadTurnover};
use memtrace_model::{MachineUsage, Pid, ProcessValues};
use rustc_hash::{FxHashMap, FxHashSet};

/// Counters at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Time since the origin.
    pub(super) at: Duration,
    /// Time since the boot of the machine, in nanoseconds.
    pub(super) boot_ns: u64,
    /// The selected running threads.
    pub(super) threads: Vec<RunningThread>,
    /// The selected processes with threads that have started or exited.
    pub(super) turnover: FxHashMap<ProcessStart, ThreadTurnover>,
    /// Values of the processes of the threads.
    pub(super) values: FxHashMap<ProcessStart, ProcessValues>,
    pub(super) machine: MachineUsage,
    /// Number of readings before this one that nobody received.
    pub(super) skipped: u64,
    /// Processes whose counters of the heap are those of an earlier reading.
    pub(super) stale: FxHashSet<Pid>,
}
