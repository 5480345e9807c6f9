//! Input and result of the assignment of mappings to parts.

use crate::explain::allocator::Serving;
use crate::explain::glibc::Found;
use crate::explain::span::Span;
use crate::explain::stacks::Threads;
use crate::model::{AbsAddr, Bytes, FileMemory, HeapMemory, MappingKind, MemorySizes, NamedMemory, ThreadStacks};
use crate::procfs::smaps::Area;
use crate::procfs::tmpfs::Tmpfs;

/// Data read from a process.
#[derive(Debug)]
pub(in crate::explain) struct Readings {
    pub(in crate::explain) areas: Vec<Area>,
    pub(in crate::explain) tmpfs: Tmpfs,
    pub(in crate::explain) threads: Threads,
    pub(in crate::explain) serving: Serving,
    /// Other allocators than the active one.
    pub(in crate::explain) beside: Vec<String>,
    /// Memory found by glibc's chunk headers; `None` if they were not read.
    pub(in crate::explain) glibc: Option<Found>,
    /// End of a file's variables (`.bss`), by the index of the anonymous mapping that continues the file's.
    pub(in crate::explain) variables: Vec<(usize, AbsAddr)>,
}

/// Measures a part of a mapping.
pub(in crate::explain) trait Closer {
    /// Returns its sizes; `None` if they cannot be read.
    fn held(&self, span: Span) -> Option<MemorySizes>;

    /// Returns true if a thread's control block is at its top.
    fn is_threads(&self, span: Span) -> bool;
}

/// The parts of a process's memory.
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
