//! Texts in procfs. The kernel takes no lock of a process to read them.

#![expect(clippy::disallowed_methods, reason = "the files are in procfs")]

use std::fs;

use memtrace_model::Pid;

/// Returns the real user id of a process; `None` if it has exited.
pub(super) fn real_user(pid: Pid) -> Option<u32> {
    real_user_in(&read_status(pid)?)
}

/// Finds the real user id in `/proc/PID/status`: `Uid: REAL EFFECTIVE SAVED FILES` (proc_pid_status(5)).
pub(super) fn real_user_in(status: &str) -> Option<u32> {
    field(status, "Uid:")?.split_whitespace().next()?.parse().ok()
}

/// Returns the parent of a process; `None` if the process has exited, or has no parent.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    parent_in(&read_status(pid)?)
}

/// Finds the parent in `/proc/PID/status`: `PPid: PID` (proc_pid_status(5)). The number is 0 if there is no parent, or none in
/// the pid namespace of memtrace.
pub(super) fn parent_in(status: &str) -> Option<Pid> {
    let parent = field(status, "PPid:")?.trim().parse().ok()?;
    (parent != 0).then_some(Pid(parent))
}

/// Finds the effective capabilities in `/proc/PID/status`: `CapEff: HEXADECIMAL` (proc_pid_status(5)).
pub(super) fn effective_capabilities_in(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff:")?.trim(), 16).ok()
}

/// Returns true if `/proc/PID/status` has the sizes of an address space (`task_mem`, fs/proc/array.c).
pub(super) fn has_memory_in(status: &str) -> bool {
    field(status, "VmSize:").is_some()
}

/// Returns the value of a field of `/proc/PID/status`. The process name cannot forge a field: its newlines are escaped
/// (`proc_task_name`, fs/proc/array.c).
pub(super) fn field<'text>(status: &'text str, name: &str) -> Option<&'text str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn read_status(pid: Pid) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_user_is_the_first_id() {
        assert_eq!(real_user_in("Uid:\t1000\t0\t0\t0"), Some(1000));
    }

    #[test]
    fn first_process_has_no_parent() {
        assert_eq!(["PPid:\t0", "PPid:\t17", "Pid:\t18"].map(parent_in), [None, Some(Pid(17)), None]);
    }

    #[test]
    fn capabilities_are_hexadecimal() {
        let lines = ["CapEff:\t000001ffffffffff", "CapPrm:\t1", "CapEff:\tx"];
        assert_eq!(lines.map(effective_capabilities_in), [Some(0x1ff_ffff_ffff), None, None]);
    }
}
