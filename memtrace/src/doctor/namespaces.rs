//! Namespaces of memtrace itself. In a child user namespace, memtrace's capabilities do not count. In a child pid
//! namespace, its pids differ from the pids that the kernel reports.

use memtrace_host::procfs;

use super::finding::{Area, Finding};

/// The root pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const ROOT_PIDS: &str = "pid:[4026531836]";

pub(super) fn examine() -> Vec<Finding> {
    let users = procfs::own_uid_map().and_then(|map| check_user_namespace(&map));
    let pids = procfs::own_pid_namespace().and_then(|namespace| check_pid_namespace(&namespace));
    users.into_iter().chain(pids).collect()
}

/// BPF, perf events and probes need capabilities in the root user namespace (`bpf_capable` and `perfmon_capable`,
/// include/linux/capability.h). In the root user namespace, every id maps to itself.
fn check_user_namespace(map: &str) -> Option<Finding> {
    let fields: Vec<&str> = map.split_whitespace().collect();
    if fields == ["0", "0", "4294967295"] {
        return None;
    }
    Some(Finding::fail(
        Area::Permissions,
        "user namespace",
        "memtrace runs in a user namespace, where its capabilities do not count for BPF and probes",
        "run memtrace as root of the host, outside of the container",
    ))
}

/// BPF programs report the pids of the root pid namespace.
fn check_pid_namespace(namespace: &str) -> Option<Finding> {
    (namespace != ROOT_PIDS).then(|| {
        Finding::warn(
            Area::Process,
            "pid namespace",
            "memtrace runs in a pid namespace, so its pids differ from those that the kernel reports",
            "run memtrace on the host, or in a container with the host's pids (docker run --pid=host)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn capabilities_count_in_the_root_user_namespace_only() {
        assert_eq!(check_user_namespace("         0          0 4294967295"), None);
        for map in ["0 1000 1", "0 100000 65536", "0 0 65536", "0 1000 1\n1 100000 65536", ""] {
            assert_eq!(check_user_namespace(map).map(|finding| finding.verdict), Some(Verdict::Fail), "{map}");
        }
    }

    #[test]
    fn other_pid_namespace_is_a_warning() {
        assert_eq!(check_pid_namespace("pid:[4026531836]"), None);
        assert_eq!(check_pid_namespace("pid:[4026532201]").map(|finding| finding.verdict), Some(Verdict::Warn));
    }
}
