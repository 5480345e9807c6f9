//! Whether memtrace itself runs in a container: there capabilities do not count, or pids are other ones.

use super::{Area, Finding, read};

/// The root pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const ROOT_PIDS: &str = "pid:[4026531836]";

pub(super) fn examine() -> Vec<Finding> {
    let pids = std::fs::read_link("/proc/self/ns/pid").ok();
    let findings =
        [users(read("/proc/self/uid_map").as_deref()), pids.and_then(|pids| counted(&pids.to_string_lossy()))];
    findings.into_iter().flatten().collect()
}

/// BPF, perf events and probes ask for capabilities in the root user namespace, whatever is held in another
/// (`bpf_capable` and `perfmon_capable`, include/linux/capability.h). In the root namespace all ids stand for themselves.
fn users(map: Option<&str>) -> Option<Finding> {
    let fields: Vec<&str> = map?.split_whitespace().collect();
    if fields == ["0", "0", "4294967295"] {
        return None;
    }
    Some(Finding::fail(
        Area::Permissions,
        "user namespace",
        "memtrace runs in one of its own, where its capabilities do not count for BPF and probes",
        "run memtrace as root of the host, outside of the container",
    ))
}

/// The kernel half says who allocates as the root pid namespace counts.
fn counted(namespace: &str) -> Option<Finding> {
    (namespace != ROOT_PIDS).then(|| {
        Finding::warn(
            Area::Process,
            "pid namespace",
            "memtrace runs in one of its own, so that its pids are not those that the kernel reports",
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
        assert_eq!(users(Some("         0          0 4294967295")), None);
        assert_eq!(users(None), None);
        for map in ["0 1000 1", "0 100000 65536", "0 0 65536", "0 1000 1\n1 100000 65536", ""] {
            assert_eq!(users(Some(map)).map(|finding| finding.verdict), Some(Verdict::Fail), "{map}");
        }
    }

    #[test]
    fn pids_of_another_namespace_are_a_warning() {
        assert_eq!(counted("pid:[4026531836]"), None);
        assert_eq!(counted("pid:[4026532201]").map(|finding| finding.verdict), Some(Verdict::Warn));
    }
}
