//! Parts of a process with separate totals.

use crate::model::{MappingKind, Tid};

/// ID of an allocator: the BPF programs number the objects that have probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocatorId(pub u16);

impl AllocatorId {
    /// The allocator was not recorded.
    pub const UNKNOWN: Self = Self(0);
}

/// ID of a tag that a program has set: the BPF programs number them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagId(pub u16);

impl TagId {
    /// The block has no tag.
    pub const UNTAGGED: Self = Self(0);
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
    /// Allocations of a thread by an allocator.
    ThreadAndAllocator(Tid, AllocatorId),
    /// Allocations with a tag.
    Tag(TagId),
    /// Allocations of a thread with a tag.
    ThreadAndTag(Tid, TagId),
    /// Allocations of an allocator with a tag.
    AllocatorAndTag(AllocatorId, TagId),
    /// Allocations of a thread by an allocator with a tag.
    ThreadAllocatorAndTag(Tid, AllocatorId, TagId),
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
    /// By thread and allocator.
    ThreadsAndAllocators,
    /// By tag.
    Tags,
    /// By thread and tag.
    ThreadsAndTags,
    /// By thread, allocator and tag.
    ThreadsAllocatorsAndTags,
    /// By kind of memory.
    Memory,
}

impl PartitionBy {
    /// Returns true if the parts have a thread.
    #[must_use]
    pub const fn has_threads(self) -> bool {
        matches!(
            self,
            Self::Threads | Self::ThreadsAndAllocators | Self::ThreadsAndTags | Self::ThreadsAllocatorsAndTags
        )
    }

    /// Returns true if the parts have an allocator.
    #[must_use]
    pub const fn has_allocators(self) -> bool {
        matches!(self, Self::Allocators | Self::ThreadsAndAllocators | Self::ThreadsAllocatorsAndTags)
    }

    /// Returns true if the parts have a tag that programs set.
    #[must_use]
    pub const fn has_tags(self) -> bool {
        matches!(self, Self::Tags | Self::ThreadsAndTags | Self::ThreadsAllocatorsAndTags)
    }
}

impl Partition {
    /// Returns the thread of the part, if it has one.
    #[must_use]
    pub const fn thread(self) -> Option<Tid> {
        match self {
            Self::Thread(tid)
            | Self::ThreadAndAllocator(tid, _)
            | Self::ThreadAndTag(tid, _)
            | Self::ThreadAllocatorAndTag(tid, ..) => Some(tid),
            Self::Whole | Self::Allocator(_) | Self::Tag(_) | Self::AllocatorAndTag(..) | Self::Memory(_) => None,
        }
    }

    /// Returns the same part of the thread `tid`, if the part has a thread.
    #[must_use]
    pub const fn with_thread(self, tid: Tid) -> Self {
        match self {
            Self::Thread(_) => Self::Thread(tid),
            Self::ThreadAndAllocator(_, id) => Self::ThreadAndAllocator(tid, id),
            Self::ThreadAndTag(_, id) => Self::ThreadAndTag(tid, id),
            Self::ThreadAllocatorAndTag(_, id, tag) => Self::ThreadAllocatorAndTag(tid, id, tag),
            Self::Whole | Self::Allocator(_) | Self::Tag(_) | Self::AllocatorAndTag(..) | Self::Memory(_) => self,
        }
    }

    /// Returns the allocator of the part, if it has one.
    #[must_use]
    pub const fn allocator(self) -> Option<AllocatorId> {
        match self {
            Self::Allocator(id)
            | Self::ThreadAndAllocator(_, id)
            | Self::AllocatorAndTag(id, _)
            | Self::ThreadAllocatorAndTag(_, id, _) => Some(id),
            Self::Whole | Self::Thread(_) | Self::Tag(_) | Self::ThreadAndTag(..) | Self::Memory(_) => None,
        }
    }

    /// Returns the same part of the allocator `id`, if the part has an allocator.
    #[must_use]
    pub const fn with_allocator(self, id: AllocatorId) -> Self {
        match self {
            Self::Allocator(_) => Self::Allocator(id),
            Self::ThreadAndAllocator(tid, _) => Self::ThreadAndAllocator(tid, id),
            Self::AllocatorAndTag(_, tag) => Self::AllocatorAndTag(id, tag),
            Self::ThreadAllocatorAndTag(tid, _, tag) => Self::ThreadAllocatorAndTag(tid, id, tag),
            Self::Whole | Self::Thread(_) | Self::Tag(_) | Self::ThreadAndTag(..) | Self::Memory(_) => self,
        }
    }

    /// Returns the tag of the part, if it has one.
    #[must_use]
    pub const fn tag(self) -> Option<TagId> {
        match self {
            Self::Tag(id)
            | Self::ThreadAndTag(_, id)
            | Self::AllocatorAndTag(_, id)
            | Self::ThreadAllocatorAndTag(.., id) => Some(id),
            Self::Whole | Self::Thread(_) | Self::Allocator(_) | Self::ThreadAndAllocator(..) | Self::Memory(_) => None,
        }
    }
}
