//! Demoted processes: the smallest block that is recorded, and the sum of the blocks below it.

use core::mem::{offset_of, size_of};

use super::Header;

/// Maximum number of demoted processes in the BPF map. BPF drops the small blocks of these processes; user space drops the
/// small blocks of further processes.
pub const MAX_DEMOTED: usize = 4096;

/// Blocks of a process that were not recorded since its demotion, because they are too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DroppedBlocks {
    /// Number of allocations.
    pub count: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
}

/// Dropped blocks of a process, in the first ring. The record precedes the record of the exec or exit. If other processes
/// still share the memory after the exit, another record follows when the last of them leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DroppedRecord {
    /// Kind, thread, process and time of the event.
    pub header: Header,
    /// Size in bytes of the smallest block that is recorded.
    pub min_size: u64,
    /// Sum since the demotion, over all images of the process.
    pub blocks: DroppedBlocks,
}

const _: () = {
    assert!(size_of::<DroppedBlocks>() == 16);
    assert!(size_of::<DroppedRecord>() == 40);
    assert!(offset_of!(DroppedRecord, min_size) == 16);
    assert!(offset_of!(DroppedRecord, blocks) == 24);
};
