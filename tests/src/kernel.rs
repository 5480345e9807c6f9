//! What the running kernel cannot do, by its release: tests hold that memtrace finds the same by trying.

use std::fs;
use std::path::Path;

use crate::mounts;

/// A mapping's notice can carry a build-id (`PERF_RECORD_MISC_MMAP_BUILD_ID`, include/uapi/linux/perf_event.h).
pub const BUILD_IDS: (u32, u32) = (5, 12);

/// The first two numbers of its release.
///
/// # Panics
///
/// If it has none.
#[must_use]
pub fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().expect("a number"));
    (numbers.next().expect("a first number"), numbers.next().expect("a second number"))
}

/// Whether files that a process maps while it is traced can be told when it has ended. Without build-ids they are told by
/// device and inode, which are not those that overlayfs shows.
///
/// # Panics
///
/// Where no root is mounted.
#[must_use]
pub fn tells_mapped_files() -> bool {
    let root = mounts::all().into_iter().rfind(|mount| mount.point == Path::new("/"));
    version() >= BUILD_IDS || root.expect("a root is mounted").kind != "overlay"
}
