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

/// Returns the parent of a process; `None` if the process has exited, or has no parent.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    String::from_utf8_lossy(&status).lines().find_map(parse_parent)
}

/// Parses `PPid: PID` (proc_pid_status(5)). The number is 0 if there is no parent, or none in the pid namespace of memtrace.
fn parse_parent(line: &str) -> Option<Pid> {
    let parent = line.strip_prefix("PPid:")?.trim().parse().ok()?;
    (parent != 0).then_some(Pid(parent))
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

    #[test]
    fn first_process_has_no_parent() {
        assert_eq!(["PPid:\t0", "PPid:\t17", "Pid:\t18"].map(parse_parent), [None, Some(Pid(17)), None]);
    }
}
