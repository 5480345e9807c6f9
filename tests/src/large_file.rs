//! Files that are larger than the limit of a cgroup.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use crate::{Scratch, victim};

/// Returns a file that is longer than `limit`, and the number of reads of the whole file that add up to at least `length`
/// bytes. Reading the file fills the page cache.
#[must_use]
pub fn create(scratch: &Scratch, limit: u64, length: u64) -> (PathBuf, u64) {
    let path = scratch.join("file");
    let file = File::create(&path).expect("the scratch directory is writable");
    if keeps_pages_of_holes(&file) {
        file.set_len(length).expect("the file can be sparse");
        return (path, 1);
    }
    // In a guest, the scratch directory is in memory. So use a file of the host, which goes through the page cache.
    let path = victim::binaries().join("memtrace");
    let size = path.metadata().expect("memtrace is built").len();
    assert!(size > limit, "{} is too short", path.display());
    (path, length.div_ceil(size))
}

/// Returns true if reading a hole fills the page cache: on any file system except tmpfs and overlayfs.
fn keeps_pages_of_holes(file: &File) -> bool {
    // SAFETY: the structure has integers only, so zeros are valid.
    let mut statistics: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer refers to a whole statfs, and the descriptor is open.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut statistics) };
    assert_eq!(result, 0, "the file has a file system");
    !matches!(statistics.f_type, libc::TMPFS_MAGIC | libc::OVERLAYFS_SUPER_MAGIC)
}
