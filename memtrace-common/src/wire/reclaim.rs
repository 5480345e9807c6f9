//! Records about waiting for memory, and counters of the kernel's search for it.

use core::mem::{offset_of, size_of};

use super::Header;

/// A task had to wait for memory to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StallRecord {
    /// Kind, thread, process, and when the wait ended.
    pub header: Header,
    /// The stack's id, as in an [`super::AllocRecord`].
    pub stack: u64,
    /// How long, in nanoseconds.
    pub duration: u64,
    /// For how much of that it was put to sleep, in nanoseconds.
    pub throttled: u64,
    /// How many pages were looked at whether they can go.
    pub scanned: u64,
    /// How many pages were freed.
    pub reclaimed: u64,
    /// What it did: one of [`reclaim_kind`]'s.
    pub work: u32,
    /// So many pages side by side were wanted, as a power of two; [`NO_ORDER`] where there is no such number.
    pub order: u32,
    /// For whose limit, or, where it was for none, in whose account: the id of a control group of the memory controller; 0
    /// where that is not known.
    pub group: u64,
}

/// The order of what is not for an allocation, as of compacting all memory, and of what the kernel does not tell it of.
pub const NO_ORDER: u32 = u32::MAX;

/// The kernel has chosen a process to be killed, since no memory was to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OomRecord {
    /// Kind, time; thread and process are the victim's.
    pub header: Header,
    /// The name of the victim's thread; zeros where it is not told.
    pub comm: [u8; COMM],
    /// The process that found no memory.
    pub by: u32,
    /// Zero.
    pub reserved: u32,
    /// The name of the thread that found no memory.
    pub by_comm: [u8; COMM],
    /// The control group that the victim's memory is reclaim_counter in, as in a [`StallRecord`].
    pub group: u64,
    /// The control group, that of the thread which found no memory or one above, that was full; 0 where none was.
    pub full: u64,
}

/// `TASK_COMM_LEN`, include/linux/sched.h.
pub const COMM: usize = 16;

/// What is done to find memory.
pub mod reclaim_kind {
    /// A task whose allocation finds too few free pages looks for pages that can go.
    pub const DIRECT: u32 = 0;
    /// A task whose control group is at its limit looks for pages of the group that can go.
    pub const MEMCG: u32 = 1;
    /// Pages are moved so that free ones lie side by side.
    pub const COMPACTION: u32 = 2;
    /// The kernel's own thread looks for pages that can go before anybody has to.
    pub const KSWAPD: u32 = 3;
    /// A task sleeps, so that others come to free pages.
    pub const THROTTLED: u32 = 4;
    /// Pages that can go are looked for by somebody else, as on `madvise(MADV_PAGEOUT)`.
    pub const OTHER: u32 = 5;
    /// How many there are.
    pub const COUNT: u32 = 6;
}

/// Where the counters of one [`reclaim_kind`] lie in the table of them; the next one's lie behind.
pub mod reclaim_counter {
    /// How often it ended.
    pub const TIMES: u32 = 0;
    /// How long it took, in nanoseconds.
    pub const TIME: u32 = 1;
    /// Inactive pages that were looked at.
    pub const SCANNED: u32 = 2;
    /// Active pages that were looked at.
    pub const SCANNED_ACTIVE: u32 = 3;
    /// Inactive pages that were taken off their list.
    pub const TAKEN: u32 = 4;
    /// Pages that were freed.
    pub const RECLAIMED: u32 = 5;
    /// Pages that are not active any more.
    pub const DEACTIVATED: u32 = 6;
    /// Pages that were written out.
    pub const WRITTEN: u32 = 7;
    /// How many there are.
    pub const COUNT: u32 = 8;
}

/// How many counters of reclaim there are.
pub const RECLAIM_COUNTERS: u32 = reclaim_kind::COUNT * reclaim_counter::COUNT;

/// The most kernel threads whose work is kept apart.
pub const MAX_KERNEL_THREADS: usize = 512;

/// A kernel thread, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct KernelThread {
    /// Its name.
    pub comm: [u8; COMM],
    /// What it does: one of [`reclaim_kind`]'s.
    pub work: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a kernel thread has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelThreadTotals {
    /// How often.
    pub times: u64,
    /// How long, in nanoseconds.
    pub time: u64,
    /// How many pages were looked at.
    pub scanned: u64,
    /// How many pages were freed.
    pub reclaimed: u64,
}

/// Arguments of the tracepoints of reclaim, which differ between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ReclaimArguments {
    /// Index of the order in `mm_vmscan_direct_reclaim_begin`: 1 in Linux 7.2, 0 in 6.18.
    pub order: u32,
    /// Index of the list in `mm_vmscan_lru_isolate`: 7 if the isolation mode precedes it, else 6.
    pub lru: u32,
    /// 1 if the third argument of `mm_vmscan_memcg_reclaim_begin` is the memcg at its limit (Linux 7.2), else 0.
    pub has_memcg: u32,
    /// Offset of `compact_control.order` in the first argument of `mm_compaction_begin`; 0 if that argument is something
    /// else, as in Linux 5.10.
    pub compaction_order: u32,
}

/// The most control groups for which it is kept apart how much was scanned for their limits.
pub const MAX_MEMCGS: usize = 4096;

const _: () = {
    assert!(size_of::<StallRecord>() == 72);
    assert!(offset_of!(StallRecord, stack) == 16);
    assert!(offset_of!(StallRecord, order) == 60);
    assert!(offset_of!(StallRecord, group) == 64);
    assert!(size_of::<ReclaimArguments>() == 16);
    assert!(size_of::<OomRecord>() == 72);
    assert!(offset_of!(OomRecord, by) == 32);
    assert!(size_of::<KernelThread>() == 24);
    assert!(size_of::<KernelThreadTotals>() == 32);
};
