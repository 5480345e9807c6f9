//! Usage of threads: counters that the BPF programs add up, or read from the kernel.

use core::mem::size_of;

use super::reclaim::COMM;

/// Indices of the counters of a thread. The first four count blocks of the heap.
pub mod usage {
    /// Bytes of allocated blocks.
    pub const ALLOC_BYTES: usize = 0;
    /// Number of allocated blocks.
    pub const ALLOC_COUNT: usize = 1;
    /// Bytes of freed blocks.
    pub const FREE_BYTES: usize = 2;
    /// Number of freed blocks.
    pub const FREE_COUNT: usize = 3;
    /// Processor time in user mode, in nanoseconds.
    pub const USER_TIME: usize = 4;
    /// Processor time in the kernel, in nanoseconds.
    pub const SYSTEM_TIME: usize = 5;
    /// Time on a run queue without running, in nanoseconds.
    pub const RUN_DELAY: usize = 6;
    /// Voluntary context switches.
    pub const VOLUNTARY_SWITCHES: usize = 7;
    /// Involuntary context switches.
    pub const INVOLUNTARY_SWITCHES: usize = 8;
    /// Bytes read from storage.
    pub const READ_BYTES: usize = 9;
    /// Bytes written to storage.
    pub const WRITE_BYTES: usize = 10;
    /// Minor page faults.
    pub const MINOR_FAULTS: usize = 11;
    /// Major page faults.
    pub const MAJOR_FAULTS: usize = 12;
    /// Number of counters.
    pub const COUNT: usize = 13;
    /// Number of counters of the heap.
    pub const HEAP: usize = 4;
}

/// A running thread, as the task iterator reports it, or a thread at its exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadRecord {
    /// Process id, in the root pid namespace.
    pub pid: u32,
    /// Thread id, in the root pid namespace.
    pub tid: u32,
    /// Start of the thread, in nanoseconds since boot.
    pub start_ns: u64,
    /// Start of the process, in nanoseconds since boot.
    pub process_start_ns: u64,
    /// Value of the thread pointer register, the base of thread-local variables; 0 if it is not known.
    pub thread_pointer: u64,
    /// State of the task: the bits of `__state` and `exit_state`.
    pub state: u32,
    /// At the exit of a thread, [`COUNTERS_READ`] or [`COUNTERS_UNREADABLE`] if the allocator of the process has its
    /// own counters, else 0.
    pub flags: u32,
    /// Name of the thread.
    pub comm: [u8; COMM],
    /// Counters, by the constants of [`usage`].
    pub usage: [u64; usage::COUNT],
}

/// Bit of [`ThreadRecord::flags`]: the usage contains the counters of the allocator.
pub const COUNTERS_READ: u32 = 1;
/// Bit of [`ThreadRecord::flags`]: the counters of the allocator could not be read.
pub const COUNTERS_UNREADABLE: u32 = 2;

/// Identity of a process: a pid may be reused, but not with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct ProcessKey {
    /// Process id, in the root pid namespace.
    pub pid: u64,
    /// Start of the process, in nanoseconds since boot.
    pub start_ns: u64,
}

/// Starts and exits of a process's threads while the process was monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessUsage {
    /// Sums of the counters of exited threads, by the constants of [`usage`].
    pub ended: [u64; usage::COUNT],
    /// Number of threads that have started.
    pub started: u64,
    /// Number of threads that have exited.
    pub exited: u64,
    /// State of the process: the bits [`PROCESS_EXITED`] and [`PROCESS_OOM_KILLED`].
    pub flags: u64,
    /// Name of the first thread, if the flag [`PROCESS_EXITED`] is set.
    pub comm: [u8; COMM],
}

/// Bit of [`ProcessUsage::flags`]: a thread of the process has exited, and no live thread was left. Threads that
/// began to exit before it may not be counted yet.
pub const PROCESS_EXITED: u64 = 1;
/// Bit of [`ProcessUsage::flags`]: the OOM killer has selected the process.
pub const PROCESS_OOM_KILLED: u64 = 2;

/// Maximum number of processes with [`ProcessUsage`].
pub const MAX_USED_PROCESSES: usize = 1 << 14;

/// Maximum number of live blocks in the map of sizes. The map is for allocators that store no sizes.
pub const MAX_SIZES: usize = 1 << 20;

const _: () = {
    assert!(size_of::<ThreadRecord>() == 160);
    assert!(size_of::<ProcessUsage>() == 144);
    assert!(size_of::<ProcessKey>() == 16);
};
