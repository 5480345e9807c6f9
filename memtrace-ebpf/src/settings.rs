//! Settings that user space writes before it loads the programs. The verifier treats them as constants, and drops the
//! branches that they exclude.

use memtrace_common::wire::{
    CgroupLayout, HIERARCHIES, HugeFaultLayout, MAX_FRAMES, MemcgLayout, MemoryLockLayout, REDUNDANT_PROGRAMS,
    ReclaimArguments, ReturnInstanceLayout, RusageLayout, Settings, TaskLayout, ThreadIoLayout, ThreadLayout,
    VmaLayout, VmaTreeLayout, filter_mode, thread_filter,
};

use crate::limits::{PENDING_SLOTS, SCRATCH_SLOTS};

/// The loader overwrites these values. They enable all code, so that the verifier checks all of it if the object is
/// loaded unchanged. There are two exceptions. Redundant programs for system calls are off, because most kernels do
/// not need them. The look-up of return instances is off, and is verified only with the settings of a run.
#[unsafe(no_mangle)]
pub static SETTINGS: Settings = Settings {
    start_ns: 0,
    max_size: u64::MAX,
    wake_mark: u64::MAX,
    min_wait: 0,
    min_call: 0,
    rings: 1,
    max_depth: MAX_FRAMES as u32,
    filter_mode: filter_mode::MATCHING,
    traced_by_default: 1,
    filters_by_user: 1,
    filters_by_comm: 1,
    filters_by_cgroup: 1,
    thread_filter: thread_filter::INCLUDED,
    hierarchies: [0; HIERARCHIES],
    records_allocators: 1,
    records_tags: 1,
    records_late_tags: 1,
    usable_sizes: 1,
    page_sample: 1,
    records_forks: 1,
    records_mappings: 1,
    syscall_programs: 1,
    pending_slots: PENDING_SLOTS as u32,
    scratch_slots: SCRATCH_SLOTS as u32,
    records_thread_exits: 1,
    records_activity: 1,
    task: TaskLayout::UNRESOLVED,
    return_instances: ReturnInstanceLayout { known: 0, ..ReturnInstanceLayout::UNRESOLVED },
    vma: VmaLayout::UNRESOLVED,
    vma_tree: VmaTreeLayout::UNRESOLVED,
    cgroup: CgroupLayout::UNRESOLVED,
    memcg: MemcgLayout::UNRESOLVED,
    rusage: RusageLayout::UNRESOLVED,
    huge_fault: HugeFaultLayout::UNRESOLVED,
    reclaim: ReclaimArguments { order: 0, lru: 6, has_memcg: 0, compaction_order: 0 },
    thread: ThreadLayout::UNRESOLVED,
    thread_io: ThreadIoLayout::UNRESOLVED,
    memory_lock: MemoryLockLayout::UNRESOLVED,
};

/// Reads a field of the settings by its path, such as `field!(vma.vm_start)`.
macro_rules! field {
    // SAFETY: this reads an initialised static. The read is volatile, so that the compiler does not use the initial
    // value.
    ($($field:ident).+ $([$index:literal])?) => {
        unsafe { core::ptr::read_volatile(&raw const $crate::settings::SETTINGS.$($field).+ $([$index])?) }
    };
}
pub(crate) use field;

#[inline(always)]
pub fn start_ns() -> u64 {
    field!(start_ns)
}

/// Returns the number of slots for pending calls, a power of two.
#[inline(always)]
pub fn pending_slots() -> u32 {
    field!(pending_slots)
}

/// Returns the number of slots of scratch memory, a power of two.
#[inline(always)]
pub fn scratch_slots() -> u32 {
    field!(scratch_slots)
}

#[inline(always)]
pub fn rings() -> u32 {
    field!(rings)
}

#[inline(always)]
pub fn max_depth() -> u32 {
    field!(max_depth)
}

#[inline(always)]
pub fn wake_mark() -> u64 {
    field!(wake_mark)
}

/// Returns false in every run, because each run has a ring. The compiler cannot know this.
#[inline(always)]
pub fn never() -> bool {
    field!(rings) == 0
}

/// Returns the rule that selects the traced processes: a constant of [`filter_mode`].
#[inline(always)]
pub fn filter_mode() -> u32 {
    field!(filter_mode)
}

#[inline(always)]
pub fn is_traced_by_default() -> bool {
    field!(traced_by_default) != 0
}

#[inline(always)]
pub fn filters_by_user() -> bool {
    field!(filters_by_user) != 0
}

#[inline(always)]
pub fn filters_by_comm() -> bool {
    field!(filters_by_comm) != 0
}

#[inline(always)]
pub fn filters_by_cgroup() -> bool {
    field!(filters_by_cgroup) != 0
}

/// Returns the rule that selects the threads with recorded allocations: a constant of [`thread_filter`].
#[inline(always)]
pub fn thread_filter() -> u32 {
    field!(thread_filter)
}

#[inline(always)]
pub fn records_allocators() -> bool {
    field!(records_allocators) != 0
}

#[inline(always)]
pub fn records_tags() -> bool {
    field!(records_tags) != 0
}

/// Returns true if functions can tag a block that was allocated before.
#[inline(always)]
pub fn records_late_tags() -> bool {
    field!(records_late_tags) != 0
}

/// Returns true if blocks are recorded with their usable size, false if they are recorded with the requested size.
#[inline(always)]
pub fn has_usable_sizes() -> bool {
    field!(usable_sizes) != 0
}

#[inline(always)]
pub fn records_activity() -> bool {
    field!(records_activity) != 0
}

/// Returns the shortest duration, in nanoseconds, of an allocator call that is recorded as activity; `u64::MAX` if
/// calls are not timed.
#[inline(always)]
pub fn min_call() -> u64 {
    field!(min_call)
}

/// Returns N if one page in N is sampled.
#[inline(always)]
pub fn page_sample() -> u32 {
    field!(page_sample)
}

#[inline(always)]
pub fn records_thread_exits() -> bool {
    field!(records_thread_exits) != 0
}

#[inline(always)]
pub fn records_forks() -> bool {
    field!(records_forks) != 0
}

/// Returns true if all changes of mappings are recorded, false if only moves are.
#[inline(always)]
pub fn records_mappings() -> bool {
    field!(records_mappings) != 0
}

#[inline(always)]
pub fn follows_syscalls() -> bool {
    field!(syscall_programs) != 0
}

/// Returns true if each system call tracepoint has redundant programs.
#[inline(always)]
pub fn has_redundant_syscall_programs() -> bool {
    field!(syscall_programs) == REDUNDANT_PROGRAMS
}

#[inline(always)]
pub fn has_cgroups() -> bool {
    field!(cgroup.known) != 0
}

#[inline(always)]
pub fn has_memcgs() -> bool {
    field!(memcg.known) != 0
}

#[inline(always)]
pub fn has_rusage() -> bool {
    field!(rusage.known) != 0
}
