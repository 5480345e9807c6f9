//! Settings that user space writes into the BPF object before it is loaded, and the values of the recording gate.

use core::mem::size_of;

use super::{
    CgroupLayout, HIERARCHIES, HugeFaultLayout, MemcgLayout, MemoryLockLayout, ReclaimArguments, ReturnInstanceLayout,
    RusageLayout, TaskLayout, ThreadIoLayout, ThreadLayout, VmaLayout, VmaTreeLayout,
};

/// Settings of a run. The verifier treats them as constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settings {
    /// Monotonic clock at tick 0, in nanoseconds.
    pub start_ns: u64,
    /// Size in bytes of the largest recorded allocation.
    pub max_size: u64,
    /// Backlog of a ring in bytes. If the backlog reaches this size, BPF wakes the ring's reader.
    pub wake_mark: u64,
    /// Shortest futex wait that is recorded, in nanoseconds; `u64::MAX` if no waits are recorded.
    pub min_wait: u64,
    /// Shortest allocator call that is recorded as activity, in nanoseconds; `u64::MAX` if calls are not timed.
    pub min_call: u64,
    /// Number of rings: 1 to [`super::MAX_RINGS`].
    pub rings: u32,
    /// Maximum number of frames of a stack: 0 (no stacks) to [`super::MAX_FRAMES`].
    pub max_depth: u32,
    /// Rule that selects the traced processes: a constant of [`super::filter_mode`].
    pub filter_mode: u32,
    /// 1 if a process without a matching filter is traced, else 0.
    pub traced_by_default: u32,
    /// 1 if a filter names a user, else 0.
    pub filters_by_user: u32,
    /// 1 if a filter names a comm, else 0.
    pub filters_by_comm: u32,
    /// 1 if a filter names a cgroup, else 0.
    pub filters_by_cgroup: u32,
    /// Rule that selects the threads with recorded allocations: a constant of [`super::thread_filter`].
    pub thread_filter: u32,
    /// The kernel's ids of the recorded cgroup hierarchies; [`super::NO_HIERARCHY`] for an unused entry.
    pub hierarchies: [u32; HIERARCHIES],
    /// 1 if allocation records name the allocator, else 0.
    pub records_allocators: u32,
    /// 1 if allocation records have the tag of the block, else 0.
    pub records_tags: u32,
    /// 1 if functions can tag a block that was allocated before, else 0.
    pub records_late_tags: u32,
    /// 1 if usable sizes are recorded for allocators that store them, 0 if requested sizes are recorded.
    pub usable_sizes: u32,
    /// N, if one page in N is recorded; 1 records every page.
    pub page_sample: u32,
    /// 1 if forks are recorded, else 0.
    pub records_forks: u32,
    /// 1 if all changes of mappings are recorded, 0 if only moves are.
    pub records_mappings: u32,
    /// Number of programs at each system call tracepoint: 0, 1, or [`REDUNDANT_PROGRAMS`] if programs can be preempted.
    pub syscall_programs: u32,
    /// Number of slots for pending calls: a power of two.
    pub pending_slots: u32,
    /// Number of slots of scratch memory: a power of two.
    pub scratch_slots: u32,
    /// 1 if exits of threads are recorded, else 0.
    pub records_thread_exits: u32,
    /// 1 if the activity of threads is recorded, else 0.
    pub records_activity: u32,
    /// Offsets of the members that every run needs.
    pub task: TaskLayout,
    /// Offsets of the members for pending uretprobes.
    pub return_instances: ReturnInstanceLayout,
    /// Offsets of the members for VMA lookups.
    pub vma: VmaLayout,
    /// Offsets of the members for VMA lookups without a lock.
    pub vma_tree: VmaTreeLayout,
    /// Offsets of the members for the cgroups of a process.
    pub cgroup: CgroupLayout,
    /// Offsets of the members for memory cgroups.
    pub memcg: MemcgLayout,
    /// Offsets of the members for page faults and peak RSS.
    pub rusage: RusageLayout,
    /// Offsets of the members for page faults in huge pages.
    pub huge_fault: HugeFaultLayout,
    /// Arguments of the tracepoints of reclaim.
    pub reclaim: ReclaimArguments,
    /// Offsets of the members for the usage of threads.
    pub thread: ThreadLayout,
    /// Offsets of the members for the I/O of threads.
    pub thread_io: ThreadIoLayout,
    /// Offsets of the members for the locks of memory maps.
    pub memory_lock: MemoryLockLayout,
}

/// Number of programs at a tracepoint, if the kernel can preempt a program. For each event, the kernel runs at least
/// one of the programs, unless all of them are in progress on the CPU.
pub const REDUNDANT_PROGRAMS: u32 = 3;

/// Number of system call tracepoints: `sys_enter` and `sys_exit`.
pub const SYSCALL_TRACEPOINTS: u32 = 2;

/// Values of the recording gate, which select the work of the programs.
pub mod gate {
    /// Do nothing.
    pub const CLOSED: u64 = 0;
    /// Record events.
    pub const OPEN: u64 = 1;
    /// Count allocation calls by size, to estimate the overhead of recording.
    pub const CALL_RATE: u64 = 2;
    /// Add up the usage of threads.
    pub const COUNTING: u64 = 3;
}

const _: () = assert!(size_of::<Settings>() == 616);
