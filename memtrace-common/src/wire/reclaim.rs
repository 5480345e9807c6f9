//! Records of stalls for memory and OOM kills, and counters of reclaim.

use core::mem::{offset_of, size_of};

use super::Header;

/// A task has waited for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StallRecord {
    /// Kind, thread and process of the stall, and the time at its end.
    pub header: Header,
    /// Id of the stack, as in an [`super::AllocRecord`].
    pub stack: u64,
    /// Duration in nanoseconds.
    pub duration: u64,
    /// Time that the task was throttled, in nanoseconds. The duration includes this time.
    pub throttled: u64,
    /// Number of inactive pages scanned.
    pub scanned: u64,
    /// Number of pages freed.
    pub reclaimed: u64,
    /// Kind of reclaim: a constant of [`reclaim_kind`].
    pub kind: u32,
    /// Order of the allocation (2^order contiguous pages), or [`NO_ORDER`].
    pub order: u32,
    /// Id of a memcg; 0 if it is not known. In memcg reclaim, the memcg at its limit; in other stalls, the task's
    /// memcg.
    pub memcg: u64,
}

/// Stands for an unknown order, and for work without an allocation, as in compaction of all memory.
pub const NO_ORDER: u32 = u32::MAX;

/// The OOM killer has selected a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OomRecord {
    /// Kind and time of the OOM kill, with the thread and process of the victim.
    pub header: Header,
    /// Name of the victim's thread; zeros if it is not known.
    pub comm: [u8; COMM],
    /// Process id of the invoker: an allocation of this process has called the OOM killer.
    pub invoker: u32,
    /// Padding: zero.
    pub reserved: u32,
    /// Name of the thread that has called the OOM killer.
    pub invoker_comm: [u8; COMM],
    /// Id of the victim's memcg; 0 if it is not known.
    pub memcg: u64,
    /// Id of the full memcg: the memcg of the invoking thread, or an ancestor of it; 0 if none was full.
    pub full_memcg: u64,
}

/// `TASK_COMM_LEN`, include/linux/sched.h.
pub const COMM: usize = 16;

/// Kinds of reclaim.
pub mod reclaim_kind {
    /// Direct reclaim: a task reclaims pages because its allocation found too few free ones.
    pub const DIRECT: u32 = 0;
    /// A task reclaims pages of a memcg that is at its limit.
    pub const MEMCG: u32 = 1;
    /// Compaction: pages are moved to make free ones contiguous.
    pub const COMPACTION: u32 = 2;
    /// kswapd reclaims pages in the background.
    pub const KSWAPD: u32 = 3;
    /// A task sleeps to let other tasks reclaim pages.
    pub const THROTTLED: u32 = 4;
    /// Other reclaim, such as `madvise(MADV_PAGEOUT)`.
    pub const OTHER: u32 = 5;
    /// Number of kinds.
    pub const COUNT: u32 = 6;
}

/// Indices of the counters of one [`reclaim_kind`]. The counters of the next kind follow.
pub mod reclaim_counter {
    /// Number of runs.
    pub const TIMES: u32 = 0;
    /// Total duration of the runs in nanoseconds.
    pub const TIME: u32 = 1;
    /// Inactive pages scanned.
    pub const SCANNED: u32 = 2;
    /// Active pages scanned.
    pub const SCANNED_ACTIVE: u32 = 3;
    /// Inactive pages isolated from their list.
    pub const TAKEN: u32 = 4;
    /// Pages freed.
    pub const RECLAIMED: u32 = 5;
    /// Pages deactivated.
    pub const DEACTIVATED: u32 = 6;
    /// Pages written out.
    pub const WRITTEN: u32 = 7;
    /// Number of counters.
    pub const COUNT: u32 = 8;
}

/// Number of counters of all kinds.
pub const RECLAIM_COUNTERS: u32 = reclaim_kind::COUNT * reclaim_counter::COUNT;

/// Maximum number of kernel threads with their own totals.
pub const MAX_KERNEL_THREADS: usize = 512;

/// Key of the totals of kernel threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct KernelThread {
    /// Name of the thread.
    pub comm: [u8; COMM],
    /// Kind of reclaim: a constant of [`reclaim_kind`].
    pub kind: u32,
    /// Padding: zero.
    pub reserved: u32,
}

/// Totals of a kernel thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelThreadTotals {
    /// Number of runs.
    pub times: u64,
    /// Total duration of the runs in nanoseconds.
    pub time: u64,
    /// Inactive pages scanned.
    pub scanned: u64,
    /// Pages freed.
    pub reclaimed: u64,
}

/// Positions of arguments of the reclaim tracepoints. The positions differ between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ReclaimArguments {
    /// Index of the argument with the order in `mm_vmscan_direct_reclaim_begin`: 1 in Linux 7.2, 0 in 6.18.
    pub order: u32,
    /// Index of the argument with the list in `mm_vmscan_lru_isolate`: 7 if the isolation mode precedes it, else 6.
    pub lru: u32,
    /// 1 if the third argument of `mm_vmscan_memcg_reclaim_begin` is the memcg at its limit (Linux 7.2), else 0.
    pub has_memcg: u32,
    /// Offset of `compact_control.order` in the first argument of `mm_compaction_begin`; 0 if the first argument is no
    /// `compact_control`, as in older kernels.
    pub compaction_order: u32,
}

/// Maximum number of memcgs with a count of scanned pages.
pub const MAX_MEMCGS: usize = 4096;

const _: () = {
    assert!(size_of::<StallRecord>() == 72);
    assert!(offset_of!(StallRecord, stack) == 16);
    assert!(offset_of!(StallRecord, order) == 60);
    assert!(offset_of!(StallRecord, memcg) == 64);
    assert!(size_of::<ReclaimArguments>() == 16);
    assert!(size_of::<OomRecord>() == 72);
    assert!(offset_of!(OomRecord, invoker) == 32);
    assert!(size_of::<KernelThread>() == 24);
    assert!(size_of::<KernelThreadTotals>() == 32);
};
