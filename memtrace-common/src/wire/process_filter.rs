//! The process filter: keys and values of the maps that select the processes to trace.

use core::mem::size_of;

/// Rules by which processes are traced.
pub mod filter_mode {
    /// Every process that hits a probe: each probe is attached to one process.
    pub const ATTACHED: u32 = 0;
    /// The processes with a [`super::decision`].
    pub const LISTED: u32 = 1;
    /// As [`LISTED`], and all their descendants.
    pub const TREES: u32 = 2;
    /// The processes that match the filters.
    pub const MATCHING: u32 = 3;
}

/// Decision on a process. If a stored number differs from the current one, the process is decided again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Decision {
    /// Flags of [`decision`].
    pub flags: u32,
    /// Real user id of the thread that was decided on.
    pub user: u32,
    /// Number of changes of cgroups and names, by any process, before the decision.
    pub changes: u64,
}

/// Flags of the decision on a process.
pub mod decision {
    /// The process is traced; otherwise it is not.
    pub const TRACED: u32 = 1;
    /// User space has decided: nothing changes the decision.
    pub const FIXED: u32 = 2;
    /// The process may have recorded memory: frees and unmaps are recorded, even if it is no longer traced.
    pub const RECORDED: u32 = 4;
    /// The next event decides.
    pub const UNDECIDED: u32 = 8;
}

/// A filter: a property of processes and its value. The map's value is a [`filter_action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FilterKey {
    /// A constant of [`filter_key`].
    pub property: u64,
    /// Value as described there.
    pub value: [u64; 2],
}

/// Properties of processes.
pub mod filter_key {
    /// Name of the first thread: up to 15 bytes, the rest zero (`TASK_COMM_LEN`, include/linux/sched.h).
    pub const COMM: u64 = 1;
    /// Real user id of the current thread; the second word is zero.
    pub const USER: u64 = 2;
    /// The executable: inode, then device in the kernel's encoding.
    pub const EXE: u64 = 3;
    /// A cgroup that the first thread is in or below: its id, then the number of its hierarchy.
    pub const CGROUP: u64 = 4;
    /// Name of the current thread, as [`COMM`]. It selects allocations, not processes.
    pub const THREAD: u64 = 5;
}

/// Threads whose allocations are recorded.
pub mod thread_filter {
    /// All threads.
    pub const ALL: u32 = 0;
    /// Threads with an including filter, and no excluding one.
    pub const INCLUDED: u32 = 1;
    /// Threads without an excluding filter.
    pub const NOT_EXCLUDED: u32 = 2;
}

/// Actions of filters. If several filters match, [`filter_action::EXCLUDE`] wins.
pub mod filter_action {
    /// Trace the process.
    pub const INCLUDE: u32 = 1;
    /// Do not trace the process.
    pub const EXCLUDE: u32 = 2;
}

/// Maximum number of filters.
pub const MAX_FILTERS: usize = 1024;

/// Maximum number of decisions.
pub const MAX_DECISIONS: usize = 1 << 16;

const _: () = {
    assert!(size_of::<FilterKey>() == 24);
    assert!(size_of::<Decision>() == 16);
};
