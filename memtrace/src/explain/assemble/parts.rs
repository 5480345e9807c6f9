//! Result of the attribution: the memory of a process by owner.

use memtrace_model::{Bytes, FileMemory, GoSizes, HeapMemory, MappingKind, MemorySizes, NamedMemory, ThreadStacks};

#[derive(Debug, Default, PartialEq)]
pub(in crate::explain) struct Parts {
    pub(in crate::explain) heap: HeapMemory,
    /// Memory of Go's runtime, if its totals are known.
    pub(in crate::explain) go: Option<GoSizes>,
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
