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
    parent_in(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

/// Finds the parent in `/proc/PID/status`.
pub(super) fn parent_in(status: &[u8]) -> Option<Pid> {
    String::from_utf8_lossy(status).lines().find_map(parse_parent)
}

/// Finds the effective capabilities in `/proc/PID/status`.
pub(super) fn effective_capabilities_in(status: &[u8]) -> Option<u64> {
    String::from_utf8_lossy(status).lines().find_map(parse_effective_capabilities)
}

/// Parses `PPid: PID` (proc_pid_status(5)). The number is 0 if there is no parent, or none in the pid namespace of memtrace.
fn parse_parent(line: &str) -> Option<Pid> {
    let parent = line.strip_prefix("PPid:")?.trim().parse().ok()?;
    (parent != 0).then_some(Pid(parent))
}

/// Parses `CapEff: HEXADECIMAL` (proc_pid_status(5)).
fn parse_effective_capabilities(line: &str) -> Option<u64> {
    u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok()
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

    #[test]
    fn capabilities_are_hexadecimal() {
        let lines = ["CapEff:\t000001ffffffffff", "CapPrm:\t1", "CapEff:\tx"];
        assert_eq!(lines.map(parse_effective_capabilities), [Some(0x1ff_ffff_ffff), None, None]);
    }
}
