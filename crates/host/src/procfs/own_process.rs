//! memtrace's own process: namespaces, clocks and descriptors.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::procfs::kernel_files;

/// Returns the uid map of memtrace's user namespace.
pub fn own_uid_map() -> Option<String> {
    kernel_files::read_to_string("/proc/self/uid_map").ok()
}

/// Returns memtrace's pid namespace, such as `pid:[4026531836]`.
pub fn own_pid_namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok().map(|link| link.to_string_lossy().into_owned())
}

/// Returns the offset of `CLOCK_MONOTONIC` in memtrace's time namespace, in nanoseconds (time_namespaces(7)).
pub fn monotonic_offset() -> i128 {
    clock_offset("monotonic")
}

/// Returns the offset of `CLOCK_BOOTTIME`, which includes suspended time, in nanoseconds.
pub fn boot_offset() -> i128 {
    clock_offset("boottime")
}

fn clock_offset(clock: &str) -> i128 {
    // Kernels without time namespaces have no such file.
    kernel_files::read_to_string("/proc/self/timens_offsets")
        .ok()
        .and_then(|text| parse_offset(&text, clock))
        .unwrap_or(0)
}

fn parse_offset(text: &str, clock: &str) -> Option<i128> {
    let mut fields = text.lines().find_map(|line| line.strip_prefix(clock))?.split_whitespace();
    let (seconds, nanoseconds): (i128, i128) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(seconds * 1_000_000_000 + nanoseconds)
}

/// Sets the OOM score adjustment of memtrace. With -1000, the OOM killer never selects it (proc_pid_oom_score_adj(5)).
///
/// # Errors
///
/// Errors of the write: a lower score needs `CAP_SYS_RESOURCE`.
pub fn set_own_oom_score(score: i32) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", score.to_string())
}

/// Returns a path of memtrace's executable. It stays valid after the file was replaced.
pub fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Returns a path that opens the file of a descriptor again. The path is valid while the descriptor is open.
pub fn descriptor_path(descriptor: &impl AsRawFd) -> PathBuf {
    Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string())
}

/// Returns the path of the file that a path of [`descriptor_path`] opens; `None` for another path.
pub(crate) fn opened_path(path: &Path) -> Option<PathBuf> {
    path.starts_with("/proc/self/fd").then(|| kernel_files::read_link(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_has_seconds_and_nanoseconds() {
        let text = "monotonic      -86400         5\nboottime           0         0\n";
        assert_eq!(parse_offset(text, "monotonic"), Some(-86_399_999_999_995));
        assert_eq!(parse_offset(text, "boottime"), Some(0));
        assert_eq!(parse_offset("boottime 0 0\n", "monotonic"), None);
    }
}
