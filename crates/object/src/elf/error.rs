//! Reasons why a file cannot be read as ELF.

use std::io;

/// Reason why a file cannot be read as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file does not begin with the ELF magic number.
    #[error("not an ELF file")]
    NotElf,
    /// The file is for another architecture.
    #[error("made for another machine ({0})")]
    Foreign(&'static str),
    /// The headers or tables of the file are damaged.
    #[error("damaged ELF file: {0}")]
    Malformed(&'static str),
    /// Reading the file failed.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

pub(super) const BEYOND: ElfError = ElfError::Malformed("a table lies outside of the file");
