//! Why there is no table.

use std::io;

/// Why an object has no table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no ELF file that can be run or loaded.
    #[error("not a program or a library: {0}")]
    NotLoadable(&'static str),
    /// It is for a kind of machine that is not known.
    #[error("made for another machine ({0})")]
    Foreign(&'static str),
    /// It has no call frame information.
    #[error("without call frame information")]
    NoFrames,
    /// It contradicts itself.
    #[error("damaged: {0}")]
    Malformed(&'static str),
    /// It claims more than a file of its size can hold.
    #[error("more than can be: {0}")]
    TooMuch(&'static str),
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}
