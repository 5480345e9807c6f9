//! Features of the running kernel by its release. Tests compare them with the features that memtrace detects by trying.

use std::env;
use std::fs;
use std::path::Path;

use crate::mounts;

/// mmap events can carry a build ID (`PERF_RECORD_MISC_MMAP_BUILD_ID`, include/uapi/linux/perf_event.h).
pub const BUILD_IDS: (u32, u32) = (5, 12);

/// BPF programs can read the registers with which a thread entered the kernel (`bpf_task_pt_regs`,
/// include/uapi/linux/bpf.h).
pub const TASK_PT_REGS: (u32, u32) = (5, 15);

/// BPF programs can look up a VMA (`bpf_find_vma`, include/uapi/linux/bpf.h).
pub const FIND_VMA: (u32, u32) = (5, 17);

/// Returns the first two numbers of the kernel release.
#[must_use]
pub fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().expect("a number"));
    (numbers.next().expect("a first number"), numbers.next().expect("a second number"))
}

/// Returns true in a guest of `cargo xtask test`, where a test may change settings of the whole machine.
#[must_use]
pub fn is_guest() -> bool {
    env::var_os("MEMTRACE_GUEST").is_some()
}

#[must_use]
pub fn has_find_vma() -> bool {
    version() >= FIND_VMA
}

/// Returns true if files that a process maps during the trace can be identified after it has exited. Without build IDs they
/// are identified by device and inode, which differ from those that overlayfs shows.
#[must_use]
pub fn identifies_mapped_files() -> bool {
    let root = mounts::list().into_iter().rfind(|mount| mount.path == Path::new("/"));
    version() >= BUILD_IDS || root.expect("a root file system is mounted").fs_type != "overlay"
}
