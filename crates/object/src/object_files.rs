//! Access to files for functions that read several of them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Opens the objects, the debug files and the files with the names of generated code.
pub trait ObjectFiles: fmt::Debug + Sync {
    /// Opens the file at `path` for reading.
    ///
    /// # Errors
    ///
    /// Errors of open(2).
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Opens the file at `path` below the directory `root` for reading. Links in the path do not lead out of `root`.
    ///
    /// # Errors
    ///
    /// Errors of openat2(2).
    fn open_below(&self, root: &Path, path: &Path) -> io::Result<File>;

    /// Returns the CRC-32 of `file`, which `object` names as its debug file.
    ///
    /// # Errors
    ///
    /// Errors of read(2); [`io::ErrorKind::FileTooLarge`] if the whole file is not to be read.
    fn checksum(&self, object: &File, file: &File) -> io::Result<u32> {
        let _ = object;
        checksum(file)
    }

    /// Returns true for memtrace's own executable, which contains an allocator. A probe belongs to a file, so memtrace
    /// itself would hit probes in its allocator, even if it traces another process that runs the same file.
    fn is_own_executable(&self, file: &File) -> bool;
}

/// Maximum size of a file with a checksum, since it is read completely.
const MAX_LINKED: u64 = 1 << 30;

/// Returns the CRC-32 of a file, as in `.gnu_debuglink`.
///
/// # Errors
///
/// Errors of read(2); [`io::ErrorKind::FileTooLarge`] above 1 GiB.
pub fn checksum(file: &File) -> io::Result<u32> {
    if file.metadata()?.len() > MAX_LINKED {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // The file can grow.
    let mut file = file.take(MAX_LINKED);
    let (mut checksum, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(checksum.finalize()),
            length => checksum.update(&buffer[..length]),
        }
    }
}

/// All files of the machine. None is memtrace's own executable.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct AllFiles;

#[cfg(test)]
impl ObjectFiles for AllFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn open_below(&self, root: &Path, path: &Path) -> io::Result<File> {
        File::open(root.join(path.strip_prefix("/").unwrap_or(path)))
    }

    fn is_own_executable(&self, _: &File) -> bool {
        false
    }
}
