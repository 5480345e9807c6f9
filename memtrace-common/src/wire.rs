//! Layout of the records in the rings, and of the settings and counters in the maps.
//!
//! Every record starts with a [`Header`]; its length is a multiple of 8 bytes. Fields are in the byte order of the
//! machine.

use core::mem::{offset_of, size_of};

mod activity;
mod counters;
mod demotion;
mod kernel_fields;
mod mark;
mod memory;
mod memory_lock;
mod owner;
mod process_filter;
mod reclaim;
mod rusage;
mod sampled;
mod settings;
mod stack_copy;
mod tag;
mod thread_usage;

use crate::unwind::ObjectKey;
pub use crate::vocabulary::StackEnd as End;
pub use activity::{
    ACTIVITY_TEXT, ActivityCookie, ActivityRecord, ActivityStep, ActivityText, COUNTED_SITES, FIRST_SEQUENCE,
    FutexWait, MAX_ACTIVE_THREADS, ThreadState, TimedCall, UNKNOWN_SEQUENCE, UNKNOWN_USAGE, call_time, futex_use,
    next_sequence, step_count,
};
pub use counters::{SIZE_CLASSES, counter, size_class};
pub use demotion::{DroppedBlocks, DroppedRecord, MAX_DEMOTED};
pub use kernel_fields::{
    CgroupLayout, HugeFaultLayout, KernelMember, MemcgLayout, MemoryLockLayout, ReturnInstanceLayout, RusageLayout,
    TaskLayout, ThreadIoLayout, ThreadLayout, VmaLayout, VmaTreeLayout,
};
pub use mark::MarkRecord;
pub use memory::{
    FaultRecord, ForkRecord, HUGE_PAGE_SHIFT, MAIN_HAS_EXITED, MAX_SHARERS, MoveRecord, PAGE_SHIFT, RangeRecord,
    ShareRecord, fault, is_sampled, ring_of_memory,
};
pub use memory_lock::{MemoryLockRecord, rwsem, task_state};
pub use owner::{HIERARCHIES, NO_HIERARCHY, OwnerRecord, REMOVED_PATH, RemovedCgroupRecord};
pub use process_filter::{
    Decision, FilterKey, MAX_DECISIONS, MAX_FILTERS, MAX_SAMPLED_PROCESSES, TRACER_CAPABILITIES, decision,
    filter_action, filter_key, filter_mode, sampled_process, thread_filter, tracer_value,
};
pub use reclaim::{
    COMM, KernelThread, KernelThreadTotals, MAX_KERNEL_THREADS, MAX_MEMCGS, NO_ORDER, OomRecord, RECLAIM_COUNTERS,
    ReclaimArguments, StallRecord, reclaim_counter, reclaim_kind,
};
pub use rusage::{RusageRecord, UNKNOWN_COUNT};
pub use sampled::{
    IntervalWord, MAX_DRAWN_SIZES, MAX_SAMPLED_FUNCTIONS, SampledAllocRecord, SampledFunction, ValuePlace,
    interval_kind, value_place,
};
pub use settings::{REDUNDANT_PROGRAMS, SYSCALL_TRACEPOINTS, Settings, gate};
pub use stack_copy::{CopyEnd, CopyPiece, LEAF_REGISTERS, MAX_PIECES, PIECE_BYTES, PIECE_WORDS, copy_kind};
pub use tag::{
    MAX_TAG_FUNCTIONS, MAX_TAG_LEVELS, MAX_TAG_STEPS, MAX_TAGGED_PROCESSES, MAX_TAGS, OTHER_TAGS, SEEN_VALUES,
    SeenValue, TAG_NAME, TagCookie, TagEntry, TagFunctionState, TagKey, UNTAGGED,
};
pub use thread_usage::{
    COUNTERS_READ, COUNTERS_UNREADABLE, MAX_SIZES, MAX_USED_PROCESSES, PROCESS_EXITED, PROCESS_OOM_KILLED, ProcessKey,
    ProcessUsage, ThreadRecord, usage,
};

macro_rules! record_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal;)*) => {
        /// Kind of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum RecordKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl RecordKind {
            /// Decodes a kind.
            #[must_use]
            pub const fn from_raw(raw: u32) -> Option<Self> {
                match raw {
                    $($number => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

record_kinds! {
    /// An allocator has returned a block: [`AllocRecord`].
    Alloc = 1;
    /// A block was freed: [`BlockRecord`].
    Free = 2;
    /// A realloc has started. Its old block is free unless the call fails: [`BlockRecord`].
    TentativeFree = 3;
    /// A realloc has failed and keeps its old block: [`BlockRecord`].
    UndoFree = 4;
    /// A new stack: [`StackRecord`], followed by its frames.
    Stack = 5;
    /// A process has called exec, which frees its old memory: [`ProcessRecord`].
    Exec = 6;
    /// A process has exited: [`ProcessRecord`].
    Exit = 7;
    /// A page fault: [`FaultRecord`].
    Fault = 8;
    /// The last fault on a page was a major fault: [`BlockRecord`].
    MajorFault = 9;
    /// A fork: [`ForkRecord`].
    Fork = 10;
    /// A range was mapped: [`RangeRecord`].
    Map = 11;
    /// A range is about to be unmapped or moved, unless the system call fails: [`RangeRecord`].
    TentativeUnmap = 12;
    /// The thread's unmap or move has failed: [`ProcessRecord`].
    UndoUnmap = 13;
    /// A range has moved: [`MoveRecord`].
    Move = 14;
    /// A task has waited for memory: [`StallRecord`].
    Stall = 15;
    /// The OOM killer has selected a process: [`OomRecord`].
    OomKill = 16;
    /// Rusage of a process. It precedes the record of the exec or exit: [`RusageRecord`].
    Rusage = 17;
    /// An allocator frees a block that was freed before: [`BlockRecord`].
    RepeatedFree = 18;
    /// User and cgroups of a process. They precede the record of the exec or exit: [`OwnerRecord`].
    Owner = 19;
    /// An allocator has returned a block. The record has the id of the block's tag: [`AllocRecord`].
    TaggedAlloc = 20;
    /// The current thread takes over a block, which gets the thread's tag: [`BlockRecord`].
    Claim = 21;
    /// A thread has exited, and its process runs on: [`ProcessRecord`].
    ThreadExit = 22;
    /// A step in the activity of a thread, in the ring of activity: [`ActivityRecord`].
    Activity = 23;
    /// Sum of the unrecorded blocks of a demoted process. It precedes the record of the exec or exit: [`DroppedRecord`].
    Dropped = 24;
    /// A child shares the memory of its parent. Every ring gets the record: [`ShareRecord`].
    Share = 25;
    /// A process has stopped sharing memory, because it has exited or called exec: [`ProcessRecord`]. Every ring gets the
    /// record. It is only for processes that are not selected. A selected process has a record of its exit or exec instead.
    Unshare = 26;
    /// A target has reported a block that it has sampled: [`SampledAllocRecord`].
    SampledAlloc = 27;
    /// A target has reported the free of a block that it may have sampled: [`BlockRecord`].
    SampledFree = 28;
}

impl RecordKind {
    /// Encodes [`Header::kind`] with the id of an allocator or a tag.
    #[inline(always)]
    #[must_use]
    pub const fn with_number(self, number: u16) -> u32 {
        self as u32 | (number as u32) << UPPER_SHIFT
    }

    /// Encodes [`Header::kind`] of a free with [`LAST_BLOCK`].
    #[inline(always)]
    #[must_use]
    pub const fn of_block(self, is_last: bool) -> u32 {
        self as u32 | (is_last as u32) << UPPER_SHIFT
    }

    /// Decodes [`Header::kind`] into the kind and the upper half: the id of the allocator or tag, or [`LAST_BLOCK`].
    #[must_use]
    pub const fn split(raw: u32) -> (Option<Self>, u16) {
        (Self::from_raw(raw & ((1 << UPPER_SHIFT) - 1)), (raw >> UPPER_SHIFT) as u16)
    }
}

/// First fields of every record in the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Lower half: the [`RecordKind`]. Upper half, from [`UPPER_SHIFT`] on, by kind:
    ///
    /// - `Alloc`: the id that user space gave the allocator; 0 if it is not known.
    /// - `TaggedAlloc`, `Claim` and `SampledAlloc`: the id of the tag; 0 for no tag.
    /// - `Free` and `TentativeFree`: [`LAST_BLOCK`] or 0.
    /// - All others: 0.
    pub kind: u32,
    /// Thread, in the root pid namespace.
    pub tid: u32,
    /// Process (thread group), in the root pid namespace.
    pub pid: u32,
    /// Time: ticks of 2^[`TICK_SHIFT`] ns since [`Settings::start_ns`], saturating.
    pub tick: u32,
}

/// Lowest bit of the upper half of [`Header::kind`].
pub const UPPER_SHIFT: u32 = 16;

/// Upper half of [`Header::kind`] in a [`RecordKind::Free`] or [`RecordKind::TentativeFree`] if the latest allocation
/// of the thread returned this address. Another thread may have reused the address since.
pub const LAST_BLOCK: u16 = 1;

/// Length of a tick in nanoseconds, as a power of two: about 1.05 ms. 32 bits hold 52 days.
pub const TICK_SHIFT: u32 = 20;

/// An allocator has returned a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllocRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Address of the block.
    pub address: u64,
    /// Size in bytes: the usable size if [`Settings::usable_sizes`] is 1 and the usable size is known, else the
    /// requested size. In a tagged allocation, the upper 16 bits are the id of the allocator ([`TaggedSize`]).
    pub size: u64,
    /// Id of the stack: a hash of its frames, the process and the generation of its mappings; or [`STACK_NOT_TAKEN`] or
    /// [`STACK_FAILED`].
    pub stack: u64,
}

/// Size of a tagged allocation, with the id of its allocator in the upper bits. No block has 256 TiB: the address space
/// of a process has 128 TiB. With five levels of page tables it has 64 PiB, but mappings above 128 TiB are made on
/// request only (Documentation/arch/x86/x86_64/5level-paging.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedSize(pub u64);

impl TaggedSize {
    const SHIFT: u32 = 48;

    /// Returns the size with the id of an allocator. Only the lower 48 bits of the size are kept.
    #[must_use]
    pub const fn new(size: u64, allocator: u16) -> Self {
        Self(size & ((1 << Self::SHIFT) - 1) | (allocator as u64) << Self::SHIFT)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 & ((1 << Self::SHIFT) - 1)
    }

    /// Returns the id of the allocator; 0 if it was not recorded.
    #[must_use]
    pub const fn allocator(self) -> u16 {
        (self.0 >> Self::SHIFT) as u16
    }
}

/// A record with an address only. The kind of the record names the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BlockRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Address of the block or page.
    pub address: u64,
}

/// An exec or exit of a process, the exit of a thread, the end of shared memory, or a failed unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
}

/// A stack. The addresses of its frames follow the record, 8 bytes each, the leaf first. A frame that was found by
/// frame pointer has the bit [`FRAME_BY_FP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Id of the stack.
    pub stack: u64,
    /// Number of frames that follow.
    pub frames: u32,
    /// Reason that the walk ended: an [`End`].
    pub end: u32,
    /// Time of the walk, in nanoseconds since [`Settings::start_ns`]. A tick is too long, because code can be replaced within a
    /// tick.
    pub taken: u64,
}

/// Request for the unwind table of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TableRequestRecord {
    /// Identity of the object.
    pub object: ObjectKey,
    /// First address of the object's mapping; 0 if the request is made at an exec, for the new executable.
    pub begin: u64,
    /// Address after the mapping; 0 if the request is made at an exec.
    pub end: u64,
    /// Process that has mapped the object, in the root pid namespace.
    pub pid: u32,
    /// Padding: zero.
    pub reserved: u32,
}

/// Stack id of an event without a stack, because stacks are disabled.
pub const STACK_NOT_TAKEN: u64 = 0;
/// Stack id of an event without a stack, because the walk failed.
pub const STACK_FAILED: u64 = 1;
/// Stack id of the sum of stacks that user space merges. BPF programs do not use it.
pub const STACK_OTHER: u64 = 2;
/// Lowest id of a stack with frames.
pub const STACK_FIRST: u64 = 3;

/// Maximum number of frames of a stack. A power of two, so that BPF programs can bound an index by a mask.
pub const MAX_FRAMES: usize = 256;

/// Bit of a frame that was found by frame pointer. User addresses have at most 56 bits
/// (Documentation/arch/x86/x86_64/mm.rst).
pub const FRAME_BY_FP: u64 = 1 << 63;

/// Default for the maximum number of frames.
pub const DEFAULT_FRAMES: u32 = 128;

/// Maximum number of rings, and of shards.
pub const MAX_RINGS: u32 = 16;

/// Returns the index of the ring for records about a block. All records about a block use one ring, which keeps their
/// order. If processes share their memory, `pid` is the process that had the memory first.
#[inline(always)]
#[must_use]
pub const fn ring_of(pid: u32, address: u64, rings: u32) -> u32 {
    // Blocks are 16-byte aligned; Fibonacci hashing spreads the other bits (Knuth, TAOCP 3, 6.4).
    let mixed = ((address >> 4) ^ ((pid as u64) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Scaling to the number of rings needs no division (Lemire, "Fast random integer generation in an interval", 2019).
    (((mixed >> 32) * rings as u64) >> 32) as u32
}

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<AllocRecord>() == 40);
    assert!(offset_of!(AllocRecord, address) == 16);
    assert!(offset_of!(AllocRecord, size) == 24);
    assert!(offset_of!(AllocRecord, stack) == 32);
    assert!(size_of::<BlockRecord>() == 24);
    assert!(offset_of!(BlockRecord, address) == 16);
    assert!(size_of::<ProcessRecord>() == 16);
    assert!(size_of::<StackRecord>() == 40);
    assert!(offset_of!(StackRecord, stack) == 16);
    assert!(offset_of!(StackRecord, frames) == 24);
    assert!(offset_of!(StackRecord, end) == 28);
    assert!(offset_of!(StackRecord, taken) == 32);
    assert!(MAX_FRAMES.is_power_of_two() && DEFAULT_FRAMES as usize <= MAX_FRAMES);
    assert!(size_of::<TableRequestRecord>() == 48);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_kinds_are_decoded_as_encoded() {
        let kinds = (0..=u32::MAX >> UPPER_SHIFT).filter_map(RecordKind::from_raw);
        assert_eq!(kinds.clone().count(), 28);
        for kind in kinds {
            assert_eq!(RecordKind::from_raw(kind as u32), Some(kind));
            assert_eq!(RecordKind::split(kind as u32), (Some(kind), 0));
            assert_eq!(RecordKind::split(kind.with_number(u16::MAX)), (Some(kind), u16::MAX));
            assert_eq!(RecordKind::split(kind.of_block(true)), (Some(kind), LAST_BLOCK));
            assert_eq!(RecordKind::split(kind.of_block(false)), (Some(kind), 0));
        }
        assert_eq!(RecordKind::from_raw(0), None);
    }

    #[test]
    fn blocks_spread_evenly_over_the_rings() {
        let mut counts = [0u32; 4];
        for block in 0..4096u64 {
            counts[ring_of(4321, 0x7f00_0000_0000 + block * 32, 4) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (900..1150).contains(&count)), "{counts:?}");
    }
}
