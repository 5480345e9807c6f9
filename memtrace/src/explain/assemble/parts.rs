//! Input and result of the assignment of mappings to parts.

use crate::explain::allocator::Serving;
use crate::explain::glibc::Found;
use crate::explain::span::Span;
use crate::explain::stacks::Threads;
use crate::model::{AbsAddr, Bytes, FileMemory, HeapMemory, MappingKind, MemorySizes, NamedMemory, ThreadStacks};
use crate::procfs::smaps::Area;
use crate::procfs::tmpfs::Tmpfs;

/// What was read of a process.
#[derive(Debug)]
pub(in crate::explain) struct Readings {
    pub(in crate::explain) areas: Vec<Area>,
    pub(in crate::explain) tmpfs: Tmpfs,
    pub(in crate::explain) threads: Threads,
    pub(in crate::explain) serving: Serving,
    /// Allocators beside the one that serves.
    pub(in crate::explain) beside: Vec<String>,
    /// What glibc's marks say; `None` where they were not looked at.
    pub(in crate::explain) glibc: Option<Found>,
    /// Of mappings, by their index, that continue a file's: where the file's variables end (`.bss`).
    pub(in crate::explain) variables: Vec<(usize, AbsAddr)>,
}

/// Looks closer at a part of a mapping.
pub(in crate::explain) trait Closer {
    /// How much of it is where; `None` where that cannot be read.
    fn held(&self, span: Span) -> Option<MemorySizes>;

    /// Whether a thread's own memory lies at its top.
    fn is_threads(&self, span: Span) -> bool;
}

/// Who has which part.
#[derive(Debug, Default, PartialEq)]
pub(in crate::explain) struct Parts {
    pub(in crate::explain) heap: HeapMemory,
    pub(in crate::explain) anonymous: Vec<NamedMemory>,
    pub(in crate::explain) main_stack: MemorySizes,
    pub(in crate::explain) thread_stacks: ThreadStacks,
    pub(in crate::explain) files: Vec<FileMemory>,
    pub(in crate::explain) shmem: Vec<NamedMemory>,
    pub(in crate::explain) special: MemorySizes,
    pub(in crate::explain) hugetlb: MemorySizes,
    pub(in crate::explain) kinds: Vec<(MappingKind, MemorySizes)>,
    pub(in crate::explain) pss: Bytes,
}

pub(in crate::explain) fn span_of(area: &Area) -> Span {
    Span { start: area.entry.start, end: area.entry.end }
}
