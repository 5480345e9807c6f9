//! Files that the kernel generates: in procfs, sysfs and cgroup file systems, and devices. memtrace makes their paths, and no
//! process can replace them, so that they are opened as they are. A path below `/proc/PID/root` belongs to a process: see
//! [`crate::target_files`].

#![expect(clippy::disallowed_methods, reason = "the files are those of the kernel")]

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a file of the kernel for reading.
pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}

/// Reads a file of the kernel.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Reads a file of the kernel with text.
pub(crate) fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}
