//! Parts of a process whose books are kept apart, where that was asked for.

use crate::model::{MappingKind, Tid};

/// An allocator, as the kernel half numbers the objects that it has probes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocatorId(pub u16);

impl AllocatorId {
    /// It was not told which one.
    pub const UNKNOWN: Self = Self(0);
}

/// Whose books they are within a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// The process': its parts are not kept apart.
    #[default]
    Whole,
    /// A thread's: what it allocated, whoever freed it.
    Thread(Tid),
    /// An allocator's: what it handed out.
    Allocator(AllocatorId),
    /// What it has of one kind of memory.
    Memory(MappingKind),
}

/// Which parts of a process are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PartitionBy {
    /// None.
    #[default]
    Whole,
    /// Its threads.
    Threads,
    /// Its allocators.
    Allocators,
    /// The kinds of its memory.
    Memory,
}
