//! Bounded reads from the bytes of an ELF file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use object::LittleEndian;
use object::pod::{self, Pod};

use super::error::{BEYOND, ElfError};

pub(super) const LE: LittleEndian = LittleEndian;

/// Bytes that can be read at an offset.
pub trait Source {
    /// Fills `into` with the bytes from `offset` on. The error is `UnexpectedEof` if the source ends too early.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;
}

impl Source for &File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Source for &[u8] {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok((**self).len() as u64)
    }
}

/// Reads the `T` at `offset`.
pub(super) fn read<T: Pod>(source: &impl Source, offset: u64) -> Result<T, ElfError> {
    let mut bytes = [0; 64];
    let bytes = bytes.get_mut(..size_of::<T>()).ok_or(BEYOND)?;
    fill(source, offset, bytes)?;
    pod::from_bytes::<T>(bytes).map(|(value, _)| *value).map_err(|()| BEYOND)
}

/// Fills `bytes` from `offset` on.
pub(super) fn fill(source: &impl Source, offset: u64, bytes: &mut [u8]) -> Result<(), ElfError> {
    // For an offset beyond i64::MAX, which means a damaged file, pread would report an invalid argument.
    if i64::try_from(offset).is_err() {
        return Err(BEYOND);
    }
    source.read_at(offset, bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ElfError::Malformed("the file ends before its headers say so"),
        _ => ElfError::Io(error),
    })
}
