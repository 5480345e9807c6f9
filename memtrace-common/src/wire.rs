//! How records lie in the rings, and, in a module each, how settings reach the kernel half and counts come back.
//!
//! Every record begins with its [`RecordKind`] and is a multiple of 8 bytes long. All fields are little-endian natives of the
//! one machine that both halves run on.

use core::mem::{offset_of, size_of};

mod counters;
mod kernel_fields;
mod memory;
mod process_filter;
mod reclaim;
mod rusage;
mod settings;

use crate::unwind::ObjectKey;
pub use crate::vocabulary::StackEnd as End;
pub use counters::{SIZE_CLASSES, counter, size_class};
pub use kernel_fields::{KernelMember, MemcgLayout, ReturnInstanceLayout, RusageLayout, TaskLayout, VmaLayout};
pub use memory::{FaultRecord, ForkRecord, MoveRecord, PAGE_SHIFT, RangeRecord, fault, is_sampled, ring_of_memory};
pub use process_filter::{FilterKey, MAX_DECISIONS, MAX_FILTERS, decision, filter_action, filter_key, filter_mode};
pub use reclaim::{
    COMM, KernelThread, KernelThreadTotals, MAX_KERNEL_THREADS, MAX_MEMCGS, NO_ORDER, OomRecord, RECLAIM_COUNTERS,
    ReclaimArguments, StallRecord, reclaim_counter, reclaim_kind,
};
pub use rusage::{RusageRecord, UNKNOWN_COUNT};
pub use settings::{REDUNDANT_PROGRAMS, SYSCALL_TRACEPOINTS, Settings, gate};

/// What a record says; the first field of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// A block was handed out: [`AllocRecord`].
    Alloc = 1,
    /// A block was given up: [`BlockRecord`].
    Free = 2,
    /// A realloc began and gives up its old block, perhaps to take it back: [`BlockRecord`].
    TentativeFree = 3,
    /// A realloc failed and takes its old block back: [`BlockRecord`].
    UndoFree = 4,
    /// A stack's frames: [`StackRecord`], followed by its frames.
    Stack = 5,
    /// A process runs a new program, its old memory is gone: [`ProcessRecord`].
    Exec = 6,
    /// A process ended: [`ProcessRecord`].
    Exit = 7,
    /// A page was touched that was not there, or not the process' own: [`FaultRecord`].
    Fault = 8,
    /// The last touch of a page had to wait for a device: [`BlockRecord`].
    MajorFault = 9,
    /// A process was copied: [`ForkRecord`].
    Fork = 10,
    /// Addresses were mapped: [`RangeRecord`].
    Map = 11,
    /// Addresses are about to be unmapped or moved: [`RangeRecord`].
    TentativeUnmap = 12,
    /// They were not: [`ProcessRecord`].
    UndoUnmap = 13,
    /// They were moved: [`MoveRecord`].
    Move = 14,
    /// A task had to wait for memory: [`StallRecord`].
    Stall = 15,
    /// A process is killed for want of memory: [`OomRecord`].
    OomKill = 16,
    /// What the kernel has counted of a process that is about to run a new program or to end: [`RusageRecord`].
    Rusage = 17,
}

impl RecordKind {
    /// The kind that a record's first field stands for.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Alloc),
            2 => Some(Self::Free),
            3 => Some(Self::TentativeFree),
            4 => Some(Self::UndoFree),
            5 => Some(Self::Stack),
            6 => Some(Self::Exec),
            7 => Some(Self::Exit),
            8 => Some(Self::Fault),
            9 => Some(Self::MajorFault),
            10 => Some(Self::Fork),
            11 => Some(Self::Map),
            12 => Some(Self::TentativeUnmap),
            13 => Some(Self::UndoUnmap),
            14 => Some(Self::Move),
            15 => Some(Self::Stall),
            16 => Some(Self::OomKill),
            17 => Some(Self::Rusage),
            _ => None,
        }
    }

    /// [`Header::kind`] of a record of this kind about what allocator number `allocator` has done.
    #[inline(always)]
    #[must_use]
    pub const fn by_allocator(self, allocator: u16) -> u32 {
        self as u32 | (allocator as u32) << ALLOCATOR_SHIFT
    }

    /// The kind and the allocator's number that [`Header::kind`] stands for.
    #[must_use]
    pub const fn split(raw: u32) -> (Option<Self>, u16) {
        (Self::from_raw(raw & ((1 << ALLOCATOR_SHIFT) - 1)), (raw >> ALLOCATOR_SHIFT) as u16)
    }
}

/// What every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// The [`RecordKind`] in the lower half. In the upper half, from [`ALLOCATOR_SHIFT`] on, the number that user space gave to the
    /// allocator that handed out the block of an [`AllocRecord`]; 0: not known, and in every other record.
    pub kind: u32,
    /// The thread, in the root pid namespace.
    pub tid: u32,
    /// The process (thread group), in the root pid namespace.
    pub pid: u32,
    /// When: ticks of 2^[`TICK_SHIFT`] ns since [`Settings::start_ns`], saturating.
    pub tick: u32,
}

/// Where in [`Header::kind`] the allocator's number begins.
pub const ALLOCATOR_SHIFT: u32 = 16;

/// A tick is 2^20 ns, about 1.05 ms: fine enough for ages, and 52 days of them fit 32 bits.
pub const TICK_SHIFT: u32 = 20;

/// A block was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllocRecord {
    /// RecordKind, thread, process, time.
    pub header: Header,
    /// The block's address.
    pub address: u64,
    /// The bytes asked for.
    pub size: u64,
    /// The stack's id: the hash of its frames and of whose they are under which mappings, or one of [`STACK_NOT_TAKEN`] and [`STACK_FAILED`].
    pub stack: u64,
}

/// A block was given up, parked or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BlockRecord {
    /// RecordKind, thread, process, time.
    pub header: Header,
    /// The block's address.
    pub address: u64,
}

/// A process ran a new program, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessRecord {
    /// RecordKind, thread, process, time.
    pub header: Header,
}

/// A stack's frames follow it: `frames` words of 8 bytes, leaf first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackRecord {
    /// RecordKind, thread, process, time.
    pub header: Header,
    /// The stack's id.
    pub stack: u64,
    /// How many frames follow.
    pub frames: u32,
    /// Why the walk ended where it did: an [`End`].
    pub end: u32,
    /// When: nanoseconds since [`Settings::start_ns`]. Code can be replaced by other code within a tick.
    pub taken: u64,
}

/// An object is wanted whose unwind table is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TableRequestRecord {
    /// Which.
    pub object: ObjectKey,
    /// Where it is mapped: the first address.
    pub begin: u64,
    /// The address behind the last; 0: it is the program that the process runs.
    pub end: u64,
    /// The process, in the root pid namespace.
    pub pid: u32,
    /// Zero.
    pub reserved: u32,
}

/// The stack id of an allocation for which no stack was asked for.
pub const STACK_NOT_TAKEN: u64 = 0;
/// The stack id of an allocation whose stack could not be taken.
pub const STACK_FAILED: u64 = 1;
/// The lowest id that stands for frames.
pub const STACK_FIRST: u64 = 2;

/// The most frames that one stack can have. A power of two, so that the kernel half can bound an index by a mask.
pub const MAX_FRAMES: usize = 256;

/// How many frames are taken unless more or fewer are asked for.
pub const DEFAULT_FRAMES: u32 = 128;

/// The most rings, and so the most shards.
pub const MAX_RINGS: u32 = 16;

/// The ring for records about a block: every record about one block goes through one ring, in its true order.
#[inline(always)]
#[must_use]
pub const fn ring_of(pid: u32, address: u64, rings: u32) -> u32 {
    // Blocks are 16-byte aligned; Fibonacci hashing spreads what is left (Knuth, TAOCP 3, 6.4).
    let mixed = ((address >> 4) ^ ((pid as u64) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // A multiplication scales to the number of rings without a division (Lemire, "Fast random integer generation in an
    // interval", 2019).
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
    fn kinds_survive_the_wire() {
        let kinds = (0..=u32::MAX >> ALLOCATOR_SHIFT).filter_map(RecordKind::from_raw);
        assert_eq!(kinds.clone().count(), 17);
        for kind in kinds {
            assert_eq!(RecordKind::from_raw(kind as u32), Some(kind));
            assert_eq!(RecordKind::split(kind as u32), (Some(kind), 0));
            assert_eq!(RecordKind::split(kind.by_allocator(u16::MAX)), (Some(kind), u16::MAX));
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
