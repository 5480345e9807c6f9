//! Input of the attribution: the VMAs of a process and the facts about them.

use memtrace_host::procfs::{Tmpfs, Vma};
use memtrace_model::{AbsAddr, MemorySizes};

use crate::explain::allocator::MallocProvider;
use crate::explain::glibc::HeapWalk;
use crate::explain::go::GoArenas;
use crate::explain::span::Span;
use crate::explain::stacks::Threads;

#[derive(Debug)]
pub(in crate::explain) struct ProcessMemory {
    pub(in crate::explain) vmas: Vec<Vma>,
    pub(in crate::explain) tmpfs: Tmpfs,
    pub(in crate::explain) threads: Threads,
    pub(in crate::explain) provider: MallocProvider,
    /// Names of the known allocators that are not a C library.
    pub(in crate::explain) other_allocators: Vec<String>,
    /// Result of the walk through glibc's heap; `None` without a walk.
    pub(in crate::explain) glibc: Option<HeapWalk>,
    /// Totals and arenas of Go's runtime, if they are known.
    pub(in crate::explain) go: Option<GoArenas>,
    /// Index of each anonymous VMA that starts with the `.bss` variables of a file, and the end of these variables.
    pub(in crate::explain) variables: Vec<(usize, AbsAddr)>,
}

/// Reader of the pages in an address range.
pub(in crate::explain) trait RangeInspector {
    /// Returns the sizes of the range; `None` if it cannot be read.
    fn sizes(&self, span: Span) -> Option<MemorySizes>;

    /// Returns true if a thread control block lies at the top of the range.
    fn has_thread_block(&self, span: Span) -> bool;
}

pub(in crate::explain) fn span_of(vma: &Vma) -> Span {
    Span { start: vma.entry.start, end: vma.entry.end }
}
