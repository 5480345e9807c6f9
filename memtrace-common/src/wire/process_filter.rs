//! The process filter: keys and values of the maps that select the processes to trace.

use core::mem::size_of;

/// Rules that select the traced processes.
pub mod filter_mode {
    /// Every process that hits a probe, because each probe is attached to one process.
    pub const ATTACHED: u32 = 0;
    /// Processes with a [`super::Decision`] of user space.
    pub const LISTED: u32 = 1;
    /// Processes as in [`LISTED`], and all their descendants.
    pub const TREES: u32 = 2;
    /// Processes that match the filters.
    pub const MATCHING: u32 = 3;
}

/// Decision to trace a process or not. If `user` or `changes` differs from the current value, BPF decides again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    /// Flags of [`decision`].
    pub flags: u32,
    /// Real user id of the current thread at the decision. If the flags are [`decision::TRACER`] and [`decision::UNDECIDED`],
    /// it is the user id at the exec.
    pub user: u32,
    /// Number of changes of cgroups and names, in all processes, before the decision.
    pub changes: u64,
}

/// Flags of the decision on a process.
pub mod decision {
    /// The process is traced. Without the flag it is not traced.
    pub const TRACED: u32 = 1;
    /// User space has decided, and the decision does not change.
    pub const FIXED: u32 = 2;
    /// The process may have recorded memory: its frees and unmaps are recorded even if it is no longer traced.
    pub const RECORDED: u32 = 4;
    /// There is no decision yet. It is made at the next event.
    pub const UNDECIDED: u32 = 8;
    /// The process shares the memory of another process. Until its exec, it is traced if that other process is.
    pub const SHARED: u32 = 16;
    /// The process belongs to a memtrace, and is not traced. Its children inherit the flag. After an exec, the flag stays
    /// together with [`UNDECIDED`] until the next event, which compares the new executable.
    pub const TRACER: u32 = 32;
}

/// Key of a filter: a property of processes and its value. The value in the map is a [`filter_action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FilterKey {
    /// Property: a constant of [`filter_key`].
    pub property: u64,
    /// Value of the property, as described at the constant.
    pub value: [u64; 2],
}

/// Properties of processes.
pub mod filter_key {
    /// Name of the first thread: up to 15 bytes, the rest zero (`TASK_COMM_LEN`, include/linux/sched.h).
    pub const COMM: u64 = 1;
    /// Real user id of the current thread; the second word is zero.
    pub const USER: u64 = 2;
    /// Executable: inode, then device in the kernel's encoding.
    pub const EXE: u64 = 3;
    /// Cgroup of the first thread, or an ancestor of this cgroup: the id of the cgroup, then the id of the hierarchy.
    pub const CGROUP: u64 = 4;
    /// Name of the current thread, in the encoding of [`COMM`]. It selects allocations, not processes.
    pub const THREAD: u64 = 5;
    /// Executable of a memtrace and real user id: inode, then the result of [`super::tracer_value`]. If the parent of
    /// the process belonged to a memtrace, the user id is the one that the process had at its exec.
    pub const TRACER: u64 = 6;
}

/// Returns the second word of a filter by [`filter_key::TRACER`]: the device of the executable in the kernel's encoding, and
/// the user id.
#[must_use]
pub const fn tracer_value(device: u32, user: u32) -> u64 {
    device as u64 | (user as u64) << 32
}

/// Capabilities of tracers: `CAP_SYS_ADMIN` and `CAP_BPF` (include/uapi/linux/capability.h). A process without these capabilities
/// in the initial user namespace is no memtrace, even if it runs memtrace's executable as root, as in a container.
pub const TRACER_CAPABILITIES: u64 = 1 << 21 | 1 << 39;

/// Rules that select threads. Allocations of other threads are not recorded.
pub mod thread_filter {
    /// All threads.
    pub const ALL: u32 = 0;
    /// Threads that a filter includes.
    pub const INCLUDED: u32 = 1;
    /// Threads that no filter excludes.
    pub const NOT_EXCLUDED: u32 = 2;
}

/// Actions of filters. If several filters match, [`filter_action::INCLUDE`] has the lowest precedence.
pub mod filter_action {
    /// Trace the process.
    pub const INCLUDE: u32 = 1;
    /// Do not trace the process.
    pub const EXCLUDE: u32 = 2;
    /// The process belongs to a memtrace if it has one of the [`super::TRACER_CAPABILITIES`], or if its parent belongs to one.
    /// Do not trace it in this case.
    pub const TRACER: u32 = 4;
    /// The process belongs to a memtrace if its parent does. Do not trace it in this case.
    pub const TRACER_CHILD: u32 = 8;
}

/// Maximum number of filters.
pub const MAX_FILTERS: usize = 1024;

/// Maximum number of processes with a [`Decision`].
pub const MAX_DECISIONS: usize = 1 << 16;

/// Maximum number of processes in the BPF map of processes with sampled allocations. The page faults of further processes are
/// recorded, and user space ignores them.
pub const MAX_SAMPLED_PROCESSES: usize = 1 << 13;

/// Values in the map of processes whose allocations are sampled.
pub mod sampled_process {
    /// A child of the process is not sampled until user space adds it.
    pub const ALONE: u32 = 1;
    /// A child of the process is sampled too, because it has a copy of the code that takes the samples.
    pub const WITH_CHILDREN: u32 = 2;
}

const _: () = {
    assert!(size_of::<FilterKey>() == 24);
    assert!(size_of::<Decision>() == 16);
};
