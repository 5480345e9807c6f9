//! Conversion between bytes and the types that user space shares with the BPF programs.

use memtrace_common::unwind::{FileIdReply, ObjectKey, ObjectTable, Process};
use memtrace_common::wire::{
    ActivityRecord, AllocRecord, BlockRecord, CopyEnd, CopyPiece, Decision, DroppedBlocks, DroppedRecord, FaultRecord,
    FilterKey, ForkRecord, Header, KernelThread, KernelThreadTotals, MarkRecord, MemoryLockRecord, MoveRecord,
    OomRecord, OwnerRecord, ProcessKey, ProcessUsage, RangeRecord, RemovedCgroupRecord, RusageRecord,
    SampledAllocRecord, SampledFunction, Settings, ShareRecord, StackRecord, StallRecord, TableRequestRecord, TagEntry,
    TagFunctionState, TagKey, ThreadRecord, ThreadState,
};

/// Type without padding. Any bytes are a valid value of it.
///
/// # Safety
///
/// The type must be `repr(C)`, consist of integers, and have no padding.
pub(super) unsafe trait WireType: Copy + 'static {}

macro_rules! wire_types {
    ($($name:ty),+ $(,)?) => {$(
        // SAFETY: the type is `repr(C)` and consists of integers; its size, asserted where it is defined, leaves no
        // padding.
        unsafe impl WireType for $name {}
    )+};
}

wire_types!(
    ActivityRecord,
    AllocRecord,
    BlockRecord,
    CopyEnd,
    CopyPiece,
    Decision,
    DroppedBlocks,
    DroppedRecord,
    FaultRecord,
    FileIdReply,
    FilterKey,
    ForkRecord,
    Header,
    KernelThread,
    KernelThreadTotals,
    MarkRecord,
    MemoryLockRecord,
    MoveRecord,
    ObjectKey,
    ObjectTable,
    OomRecord,
    OwnerRecord,
    Process,
    ProcessKey,
    ProcessUsage,
    RangeRecord,
    RemovedCgroupRecord,
    RusageRecord,
    SampledAllocRecord,
    SampledFunction,
    Settings,
    ShareRecord,
    StackRecord,
    StallRecord,
    TableRequestRecord,
    TagEntry,
    TagFunctionState,
    TagKey,
    ThreadRecord,
    ThreadState,
    u32,
);

/// Key or value of a BPF map.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct MapEntry<T>(pub(super) T);

// SAFETY: guaranteed by `WireType`.
unsafe impl<T: WireType> aya::Pod for MapEntry<T> {}

/// Reads a `T` from the start of `bytes`; `None` if there are too few bytes.
pub(super) fn read<T: WireType>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: there are as many bytes as a `T` has, and any bytes are a `T`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
