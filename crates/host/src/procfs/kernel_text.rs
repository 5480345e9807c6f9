//! Texts in procfs. The kernel takes no lock of a process to read them.

#![expect(clippy::disallowed_methods, reason = "the files are in procfs")]

use std::fs;

use memtrace_model::Pid;

/// Returns the real user id of a process; `None` if it has exited.
pub(super) fn real_user(pid: Pid) -> Option<u32> {
    real_user_in(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

/// Finds the real user id in `/proc/PID/status`.
pub(super) fn real_user_in(status: &[u8]) -> Option<u32> {
    String::from_utf8_lossy(status).lines().find_map(parse_real_user)
}

/// Parses `Uid: REAL EFFECTIVE SAVED FILES` (proc_pid_status(5)).
fn parse_real_user(line: &str) -> Option<u32> {
    line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_user_is_the_first_id() {
        assert_eq!(parse_real_user("Uid:\t1000\t0\t0\t0"), Some(1000));
    }
}
