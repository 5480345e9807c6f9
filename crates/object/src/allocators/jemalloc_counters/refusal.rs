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
    /// The functions of `mallctl` for this counter do not agree on its offset.
    #[error(
        "the code of mallctl for thread.{0} does not prove where the counter is; jemalloc may be built without statistics"
    )]
    Field(&'static str),
    /// The thread state is in dynamically allocated thread-local storage.
    #[error("jemalloc is built for thread-local storage that is allocated on demand (general-dynamic)")]
    DynamicTls,
    /// Neither symbols nor code lead to the thread state.
    #[error("neither a symbol nor the code of mallctl and malloc leads to jemalloc's state of a thread")]
    NoState,
    /// Several thread-local variables may be the thread state.
    #[error("several thread-local variables may be jemalloc's state of a thread")]
    SeveralStates,
    /// The location that was found is outside of the object's TLS block.
    #[error("the located counters are outside of the thread-local variables of the object")]
    Outside,
}
