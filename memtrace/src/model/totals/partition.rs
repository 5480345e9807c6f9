//! Parts of a process with separate totals.

use crate::model::{MappingKind, Tid};

/// ID of an allocator: the BPF programs number the objects that have probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocatorId(pub u16);

impl AllocatorId {
    /// The allocator was not recorded.
    pub const UNKNOWN: Self = Self(0);
}

/// The part of a process that totals belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// The whole process.
    #[default]
    Whole,
    /// Allocations of a thread, no matter which thread frees them.
    Thread(Tid),
    /// Allocations of an allocator.
    Allocator(AllocatorId),
    /// Memory of one kind.
    Memory(MappingKind),
}

/// Kind of partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PartitionBy {
    /// No partition.
    #[default]
    Whole,
    /// By thread.
    Threads,
    /// By allocator.
    Allocators,
    /// By kind of memory.
    Memory,
}
