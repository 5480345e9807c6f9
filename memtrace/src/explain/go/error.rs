//! Reasons why the parts of Go's memory are not known.

use std::sync::Arc;

use memtrace_object::elf::ElfError;
use memtrace_object::go::TotalsRefusal;

/// Reason why the parts of Go's memory are not known.
#[derive(Clone, Debug, thiserror::Error)]
pub(in crate::explain) enum GoError {
    #[error("the file of the program cannot be read: {0}")]
    File(String),
    #[error("{0}")]
    Refused(Arc<TotalsRefusal>),
    #[error("the program is mapped in an unknown way")]
    Mapping,
    #[error("memtrace has no permission to read the memory of the process, which takes CAP_SYS_PTRACE")]
    Permission,
    #[error("the totals of Go's runtime are swapped out, and memtrace does not swap them in")]
    Swapped,
    #[error("the totals of Go's runtime cannot be read")]
    Unreadable,
    #[error("the mappings of the process do not add up to the totals of Go's runtime")]
    Arenas,
    #[error("the totals of Go's runtime are larger than the mappings of the process")]
    Mappings,
}

impl From<TotalsRefusal> for GoError {
    fn from(refusal: TotalsRefusal) -> Self {
        match refusal {
            TotalsRefusal::Elf(ElfError::Io(error)) => Self::File(error.to_string()),
            refusal => Self::Refused(Arc::new(refusal)),
        }
    }
}
