//! Reasons why an object has no unwind table.

use std::io;

use crate::elf::ElfError;

/// Reason why an object has no unwind table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not an ELF program or library.
    #[error("not a program or a library: {0}")]
    NotLoadable(&'static str),
    /// The object is for another architecture.
    #[error("made for another machine ({0})")]
    Foreign(&'static str),
    /// The object has no call frame information.
    #[error("without call frame information")]
    NoFrames,
    /// The headers or the call frame information are damaged.
    #[error("damaged: {0}")]
    Malformed(&'static str),
    /// The headers or the call frame information exceed a limit for a file of this size.
    #[error("more than can be: {0}")]
    TooMuch(&'static str),
    /// Reading the file failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl From<ElfError> for Error {
    fn from(error: ElfError) -> Self {
        match error {
            ElfError::NotElf => Self::NotLoadable("not an ELF file"),
            ElfError::Foreign(reason) => Self::Foreign(reason),
            ElfError::Malformed(reason) => Self::Malformed(reason),
            ElfError::Io(error) => Self::Io(error),
        }
    }
}
