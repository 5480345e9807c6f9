//! Reasons why the totals of Go's runtime are not known.

use crate::elf::ElfError;

/// Reason why the totals of Go's runtime are not known.
#[derive(Debug, thiserror::Error)]
pub enum TotalsRefusal {
    /// The file cannot be read as ELF.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The code is for another architecture than x86-64.
    #[error("the totals of Go's runtime are only found on x86-64")]
    Architecture,
    /// The file has no build information of Go.
    #[error("the program has no build information of Go")]
    NotGo,
    /// The layout of the totals in this version of Go is not known.
    #[error("the layout of the totals of {0} is not known")]
    Version(String),
    /// The table of functions was not found, or is damaged.
    #[error("the program's table of functions (.gopclntab) was not found")]
    NoFunctionTable,
    /// The code of the runtime accesses the totals in another layout.
    #[error("the code of the program does not prove the layout of the totals")]
    Layout,
    /// The code of the runtime does not lead to the totals.
    #[error("the code of the program does not prove where the totals are")]
    NoVariable,
    /// The located totals are outside of the program's variables.
    #[error("the located totals are outside of the variables of the program")]
    Outside,
    /// The totals contradict each other.
    #[error("the totals contradict each other")]
    Implausible,
}
