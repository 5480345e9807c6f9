//! What user space fixed before loading. The verifier sees constants here and drops what they rule out.

use core::ptr::read_volatile;

use memtrace_common::wire::{AreaLayout, CountsLayout, GroupLayout, MAX_FRAMES, ReclaimLayout, Settings, TURNS, scope};

use crate::atomic;

/// Overwritten by the loader.
#[unsafe(no_mangle)]
static SETTINGS: Settings = Settings {
    start_ns: 0,
    min_size: 0,
    max_size: u64::MAX,
    rings: 1,
    max_depth: MAX_FRAMES as u32,
    wake_mark: u64::MAX,
    task_signal: 0,
    signal_live: 0,
    task_utask: 0,
    utask_instances: 0,
    instance_stack: 0,
    instance_address: 0,
    instance_next: 0,
    task_tgid: 0,
    task_leader: 0,
    task_comm: 0,
    memory_exe: 0,
    // As `areas`.
    scope: scope::SELECTED,
    by_default: 1,
    // The plain object is for kernels that tell neither.
    by_cgroup: !atomic::IS_PLAIN as u32,
    allocators: !atomic::IS_PLAIN as u32,
    page_sample: 1,
    forks: 1,
    memory_break: 0,
    mappings: 1,
    // What most kernels run; where there are more, the others are verified as well.
    calls: 1,
    // So that whoever loads the programs as they are has all of them verified.
    areas: AreaLayout {
        known: 1,
        task_memory: 0,
        code_pages: 0,
        begin: 0,
        end: 0,
        page_offset: 0,
        flags: 0,
        file: 0,
        memory: 0,
        vdso: 0,
        inode: 0,
        number: 0,
        changed_s: 0,
        changed_ns: 0,
        super_block: 0,
        device: 0,
        program: 0,
        task_files: 0,
        files_table: 0,
        table_files: 0,
        program_begin: 0,
        program_end: 0,
    },
    reclaim: ReclaimLayout {
        task_flags: 0,
        order_argument: 0,
        list_argument: 6,
        tells_group: 0,
        compaction_order: 0,
        reserved: 0,
        groups: GroupLayout {
            // As `areas`.
            known: 1,
            task_memory: 0,
            owner: 0,
            task_groups: 0,
            memory_group: 0,
            group: 0,
            node: 0,
            id: 0,
            root: 0,
            hierarchy: 0,
            memory: 0,
            with_swap: 0,
            usage: 0,
            max: 0,
            high: 0,
            parent: 0,
        },
    },
    // As `areas`.
    counts: CountsLayout {
        told: 1,
        task_minor: 0,
        task_major: 0,
        task_node: 0,
        signal_minor: 0,
        signal_major: 0,
        signal_threads: 0,
        signal_sequence: 0,
        signal_peak: 0,
        reserved: 0,
    },
};

macro_rules! read {
    // SAFETY: a read of an initialised static. Volatile, lest the compiler take the default for the value.
    ($($field:ident).+) => {
        unsafe { read_volatile(&raw const SETTINGS.$($field).+) }
    };
}

/// A function for each of the fields of `[some.layout]`.
macro_rules! offsets {
    (@read [$($layout:ident).*] $field:ident) => { read!($($layout.)* $field) };
    ($layout:tt $($field:ident)*) => {
        $(
            #[inline(always)]
            pub fn $field() -> u32 {
                offsets!(@read $layout $field)
            }
        )*
    };
}

#[inline(always)]
pub fn start_ns() -> u64 {
    read!(start_ns)
}

/// Whether an allocation of `size` bytes is wanted.
#[inline(always)]
pub fn wants(size: u64) -> bool {
    size >= read!(min_size) && size <= read!(max_size)
}

#[inline(always)]
pub fn rings() -> u32 {
    read!(rings)
}

#[inline(always)]
pub fn max_depth() -> u32 {
    read!(max_depth)
}

#[inline(always)]
pub fn wake_mark() -> u64 {
    read!(wake_mark)
}

/// False, which the compiler does not know.
#[inline(always)]
pub fn never() -> bool {
    read!(reclaim.reserved) != 0
}

/// Who is traced: one of [`scope`]'s.
#[inline(always)]
pub fn scope() -> u32 {
    read!(scope)
}

#[inline(always)]
pub fn traced_by_default() -> bool {
    read!(by_default) != 0
}

#[inline(always)]
pub fn selects_by_cgroup() -> bool {
    read!(by_cgroup) != 0
}

/// Whether it is told which allocator has handed a block out.
#[inline(always)]
pub fn tells_allocators() -> bool {
    read!(allocators) != 0
}

/// Of pages, one in so many is told of.
#[inline(always)]
pub fn page_sample() -> u32 {
    read!(page_sample)
}

/// Whether forks are told of.
#[inline(always)]
pub fn tells_forks() -> bool {
    read!(forks) != 0
}

/// Whether the second argument, not the first, of what tells that reclaim begins is the order.
#[inline(always)]
pub fn order_comes_second() -> bool {
    read!(reclaim.order_argument) == 1
}

/// Whether the eighth argument, not the seventh, of what tells that pages were looked at is their list.
#[inline(always)]
pub fn list_comes_eighth() -> bool {
    read!(reclaim.list_argument) == 7
}

/// Whether the third argument of what tells that a group's pages are looked for is the group.
#[inline(always)]
pub fn tells_group() -> bool {
    read!(reclaim.tells_group) != 0
}

/// Where in what compaction is called with the order is; 0 where it is not.
#[inline(always)]
pub fn compaction_order() -> u32 {
    read!(reclaim.compaction_order)
}

/// Whether mappings are told of; else only where they were moved.
#[inline(always)]
pub fn tells_mappings() -> bool {
    read!(mappings) != 0
}

/// Whether system calls are followed.
#[inline(always)]
pub fn follows_calls() -> bool {
    read!(calls) != 0
}

/// Whether several programs follow each system call.
#[inline(always)]
pub fn calls_take_turns() -> bool {
    read!(calls) == TURNS
}

/// Whether the kernel can be asked what a process has mapped; it answers by calling back.
#[inline(always)]
pub fn can_find_areas() -> bool {
    !atomic::IS_PLAIN && read!(areas.known) != 0
}

// Where the kernel keeps what is always asked for.
offsets! {
    [] task_signal signal_live task_utask utask_instances instance_stack instance_address instance_next task_tgid task_leader
    task_comm memory_exe memory_break
}

offsets! { [reclaim] task_flags }

/// Where the kernel keeps what a process has mapped.
pub mod areas {
    use super::{SETTINGS, read_volatile};

    offsets! {
        [areas] task_memory code_pages begin end page_offset flags file memory vdso inode number changed_s changed_ns
        super_block device program task_files files_table table_files program_begin program_end
    }
}

/// Where the kernel keeps what it counts of processes.
pub mod counts {
    use super::{SETTINGS, read_volatile};

    /// Whether it is told.
    #[inline(always)]
    pub fn told() -> bool {
        read!(counts.told) != 0
    }

    offsets! {
        [counts] task_minor task_major task_node signal_minor signal_major signal_threads signal_sequence signal_peak
    }
}

/// Where the kernel keeps the control groups of the memory controller.
pub mod groups {
    use super::{SETTINGS, read_volatile};

    /// Whether it is known.
    #[inline(always)]
    pub fn known() -> bool {
        read!(reclaim.groups.known) != 0
    }

    offsets! {
        [reclaim.groups] task_memory owner task_groups memory_group group node id root hierarchy memory with_swap usage max
        high parent
    }
}
