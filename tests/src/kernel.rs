//! Features of the running kernel by its release. Tests compare them with the features that memtrace detects by trying.

use std::env;
use std::fs;

/// First release that lets BPF programs look up a VMA (`bpf_find_vma`, include/uapi/linux/bpf.h). Every trace needs this.
pub const FIND_VMA: (u32, u32) = (5, 17);

/// Returns the first two numbers of the kernel's release.
#[must_use]
pub fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().expect("a number"));
    (numbers.next().expect("a first number"), numbers.next().expect("a second number"))
}

/// Returns true in a guest of `cargo xtask test`. In a guest, a test may change settings of the whole machine.
#[must_use]
pub fn is_guest() -> bool {
    env::var_os("MEMTRACE_GUEST").is_some()
}
