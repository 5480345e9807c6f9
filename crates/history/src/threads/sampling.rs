//! Cumulative counters of the monitored processes at one moment.

use std::time::Duration;

use memtrace_model::{
    Comm, Losses, MachineUsage, Pid, ProcessValues, SourceState, TaskState, ThreadIdentity, ThreadUsage, UsageCounter,
};

/// Counters of a thread that runs or has exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// The thread.
    pub thread: ThreadIdentity,
    /// Name of the thread.
    pub comm: Comm,
    /// State of the thread: [`TaskState::Dead`] if it has exited.
    pub state: TaskState,
    /// Counters of the kernel since the start of the thread, and counters of the heap since attach.
    pub usage: ThreadUsage,
    /// False if the counters of the heap could not be read. Then the monitor keeps the earlier counters.
    pub has_heap: bool,
}

/// Counters and values of a process.
///
/// `exits` are read first, then `ended`, then the list of threads. So `ended` has all threads of `exits`, and a thread
/// is never in both `ended` and the list. A thread that exits between the last two reads is in neither; the next
/// sampling has it in `ended` and `exits`. A thread that exits between the first two reads is in `ended`, and in
/// `exits` of the next sampling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSample {
    /// The process.
    pub pid: Pid,
    /// Start of the process since the boot of the machine, in nanoseconds.
    pub start_ns: u64,
    /// Name of the first thread of the process.
    pub comm: Comm,
    /// Origin of the counters of the heap.
    pub source: SourceState,
    /// Sum of the final counters of the threads that have exited since monitoring began. The counters of a thread
    /// count from its start.
    pub ended: ThreadUsage,
    /// Number of threads that have started since monitoring began.
    pub started: u64,
    /// Number of threads that have exited since monitoring began.
    pub exited: u64,
    /// Values of the process at this moment.
    pub values: ProcessValues,
    /// Threads that have exited since the previous sampling, in order. Some can be missing.
    pub exits: Vec<ThreadSample>,
    /// True if the process has exited. All its threads are in `ended`, and this is its last sample.
    pub has_exited: bool,
    /// True if the OOM killer has selected the process.
    pub oom_killed: bool,
}

/// Cumulative counters of the monitored processes and of the machine at one moment.
///
/// A monitored process is in each sampling from its first one until the sampling after its exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Time since the start of the monitor.
    pub at: Duration,
    /// Time since the boot of the machine, in nanoseconds. It is read after `ended` and before the list of threads.
    pub boot_ns: u64,
    /// Running threads of the processes. Threads of other processes are ignored.
    pub threads: Vec<ThreadSample>,
    /// Monitored processes.
    pub processes: Vec<ProcessSample>,
    /// Cumulative counters of the machine.
    pub machine: MachineUsage,
    /// Losses so far.
    pub losses: Losses,
}

impl ThreadSample {
    /// Returns the counters. If the counters of the heap could not be read, uses the counters of the heap in
    /// `earlier`.
    pub(super) fn usage_after(&self, earlier: ThreadUsage) -> ThreadUsage {
        if self.has_heap {
            return self.usage;
        }
        self.usage.only(|counter| !counter.is_of_heap()).plus(earlier.only(UsageCounter::is_of_heap))
    }

    /// Returns the counters of a thread without earlier counters.
    pub(super) fn usage_since_start(&self) -> ThreadUsage {
        self.usage_after(ThreadUsage::default())
    }
}
