//! Reasons why a program's own heap profile cannot be read from its file.

use crate::elf::ElfError;

/// Reason why an executable does not lead to a heap profile.
#[derive(Debug, thiserror::Error)]
pub enum GoRefusal {
    /// The file cannot be read as ELF.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The file has no build information of Go.
    #[error("the program is not written in Go, or its build information was removed")]
    NotGo,
    /// The layout of the profile is not known for this version.
    #[error("the layout of the heap profile of {0} is not known; Go 1.19 to 1.27 are supported")]
    Version(String),
    /// The table of functions was not found, or is damaged.
    #[error("the program's table of functions (.gopclntab) was not found")]
    NoFunctionTable,
    /// Neither a symbol nor code leads to a variable of the runtime.
    #[error("neither a symbol nor the code of the runtime leads to {0}")]
    NoVariable(&'static str),
}
