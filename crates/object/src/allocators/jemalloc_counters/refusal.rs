//! Reasons why the counters of a jemalloc are not located.

use crate::elf::ElfError;

/// Reason why the counters of a jemalloc are not located.
#[derive(Debug, thiserror::Error)]
pub enum CountersRefusal {
    /// The file cannot be read as ELF.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The code is for another architecture than x86-64.
    #[error("jemalloc's counters are only found on x86-64")]
    Architecture,
    /// The object has no table of `mallctl` with the names of the counters.
    #[error("the object has no table of mallctl with thread.allocated; its linker may have dropped an unused mallctl")]
    NoTable,
    /// The object has more than one jemalloc.
    #[error("the object has more than one jemalloc")]
    SeveralTables,
    /// The functions of `mallctl` do not agree on the offset of a counter.
    #[error(
        "the code of mallctl for thread.{0} does not prove where the counter is; jemalloc may be built without statistics"
    )]
    Field(&'static str),
    /// The state of threads is in dynamically allocated thread-local storage.
    #[error("jemalloc is built for thread-local storage that is allocated on demand (general-dynamic)")]
    DynamicTls,
    /// Nothing leads to the state of threads.
    #[error("neither a symbol nor the code of mallctl and malloc leads to jemalloc's state of a thread")]
    NoState,
    /// Several thread-local variables may be the state of threads.
    #[error("several thread-local variables may be jemalloc's state of a thread")]
    SeveralStates,
    /// The found location is outside of the thread-local variables.
    #[error("the located counters are outside of the thread-local variables of the object")]
    Outside,
}
