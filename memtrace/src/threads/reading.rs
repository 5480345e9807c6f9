//! Reading of all counters at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_host::kernel::{ProcessStart, RunningThread, ThreadExit, ThreadTurnover};
use memtrace_model::{MachineUsage, Pid, ProcessValues, ThreadIdentity};
use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Time since the origin of the monitor's times.
    pub(super) at: Duration,
    /// Time since the boot of the machine, in nanoseconds. It is taken after the turnover is read, and before the running
    /// threads are read.
    pub(super) boot_ns: u64,
    /// The selected running threads.
    pub(super) threads: Vec<RunningThread>,
    /// Started and exited threads of the selected processes.
    pub(super) turnover: FxHashMap<ProcessStart, ThreadTurnover>,
    /// Threads of the selected processes that have exited since the previous reading, up to a maximum.
    pub(super) exits: Vec<ThreadExit>,
    /// Values of the processes that own `threads`.
    pub(super) values: FxHashMap<ProcessStart, ProcessValues>,
    pub(super) machine: MachineUsage,
    /// Number of readings before this one that were dropped because the receiver was too slow.
    pub(super) skipped: u64,
    /// Processes with heap counters from an earlier reading.
    pub(super) stale: FxHashSet<Pid>,
    /// Running threads with heap counters that could not be read.
    pub(super) without_heap: FxHashSet<ThreadIdentity>,
    /// Number of threads so far that exited before their heap counters could be read, by process.
    pub(super) unreadable: BTreeMap<Pid, u64>,
}
