//! Capabilities of memtrace, and the sysctls that matter without them.

use std::env;

use memtrace_host::privileges::CapabilitySet;
use memtrace_host::procfs;
use memtrace_host::symbolizer::has_landlock;
use memtrace_model::printable;

use super::finding::{Area, Finding};

/// A capability that tracing needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capability {
    pub(super) name: &'static str,
    set: CapabilitySet,
    /// True if CAP_SYS_ADMIN includes the capability (`bpf_capable`, `perfmon_capable` and
    /// `checkpoint_restore_ns_capable`, include/linux/capability.h).
    admin_has_it: bool,
    purpose: &'static str,
    /// True if tracing fails without the capability.
    required: bool,
}

pub(super) const BPF: Capability = Capability {
    name: "CAP_BPF",
    set: CapabilitySet::BPF,
    admin_has_it: true,
    purpose: "to create BPF maps and load BPF programs",
    required: true,
};
pub(super) const PERFMON: Capability = Capability {
    name: "CAP_PERFMON",
    set: CapabilitySet::PERFMON,
    admin_has_it: true,
    purpose: "to load tracing programs, attach probes and read perf mmap events",
    required: true,
};
/// CAP_PERFMON allows uprobes since Linux 5.8. Since 6.16, and in updates of older kernels, only CAP_SYS_ADMIN does
/// (`perf_uprobe_event_init`, kernel/events/core.c; "perf: Revert to requiring CAP_SYS_ADMIN for uprobes").
pub(super) const SYS_ADMIN: Capability = Capability {
    name: "CAP_SYS_ADMIN",
    set: CapabilitySet::SYS_ADMIN,
    admin_has_it: true,
    purpose: "to attach probes, on Linux 6.16 and newer and on older kernels with updates of 2025",
    required: false,
};
/// All capabilities that memtrace uses.
const ALL: [Capability; 7] = [
    BPF,
    PERFMON,
    SYS_ADMIN,
    Capability {
        name: "CAP_SYS_PTRACE",
        set: CapabilitySet::SYS_PTRACE,
        admin_has_it: false,
        purpose: "to read processes of other users",
        required: false,
    },
    Capability {
        name: "CAP_CHECKPOINT_RESTORE",
        set: CapabilitySet::CHECKPOINT_RESTORE,
        admin_has_it: true,
        purpose: "to read mapped files that were deleted or replaced",
        required: false,
    },
    // Only the owner may open `/proc/PID/map_files` (mode 0500, fs/proc/base.c).
    Capability {
        name: "CAP_DAC_READ_SEARCH",
        set: CapabilitySet::DAC_READ_SEARCH,
        admin_has_it: false,
        purpose: "to read those of other users, and on overlayfs and btrfs all files that they have mapped",
        required: false,
    },
    Capability {
        name: "CAP_SYS_NICE",
        set: CapabilitySet::SYS_NICE,
        admin_has_it: false,
        purpose: "to read events before the work of other programs, without losses on a busy machine",
        required: false,
    },
];

fn has(held: CapabilitySet, capability: &Capability) -> bool {
    held.contains(capability.set) || capability.admin_has_it && held.contains(SYS_ADMIN.set)
}

/// Returns the names of the capabilities in `needed` that are not held; `None` if all of them are.
pub(super) fn missing(held: CapabilitySet, needed: &[Capability]) -> Option<String> {
    let names: Vec<_> = needed.iter().filter(|&one| !has(held, one)).map(|one| one.name).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

/// Returns the steps to get every capability.
pub(super) fn remedy() -> String {
    let path = env::current_exe().map_or_else(|_| "$(which memtrace)".into(), |path| printable(&path).into_owned());
    // CAP_SYS_ADMIN includes the capabilities that are left out here.
    let capabilities = ALL.iter().filter(|&capability| *capability == SYS_ADMIN || !capability.admin_has_it);
    let names: Vec<_> = capabilities.map(|capability| capability.name.to_lowercase()).collect();
    let names = names.join(",");
    format!("run memtrace with sudo, or grant it the capabilities: sudo setcap {names}=ep {path}")
}

pub(super) fn examine(held: CapabilitySet) -> Vec<Finding> {
    let mut findings: Vec<_> = ALL.iter().map(|capability| judge(held, capability)).collect();
    findings.push(judge_landlock(has_landlock()));
    for name in ["kernel.perf_event_paranoid", "kernel.unprivileged_bpf_disabled"] {
        let value = procfs::sysctl(name);
        // Users look for these sysctls, although they do not matter with the capabilities.
        findings.extend(value.map(|value| {
            Finding::info(Area::Permissions, name, format!("{value} (does not matter with the capabilities)"))
        }));
    }
    findings
}

/// A missing Landlock is no defect: the process that reads names has no privileges in either case.
fn judge_landlock(is_there: bool) -> Finding {
    const SUBJECT: &str = "Landlock";
    match is_there {
        true => Finding::ok(
            Area::Permissions,
            SUBJECT,
            "the process that reads names can open only the files of one object",
        ),
        false => Finding::info(
            Area::Permissions,
            SUBJECT,
            "missing: the process that reads names can open all files that every user can read; its user and seccomp \
             protect the others",
        ),
    }
}

fn judge(held: CapabilitySet, capability: &Capability) -> Finding {
    let Capability { name, purpose, required, .. } = capability;
    match (has(held, capability), required) {
        (true, _) => Finding::ok(Area::Permissions, name, format!("held, {purpose}")),
        (false, true) => Finding::fail(Area::Permissions, name, format!("missing: needed {purpose}"), remedy()),
        (false, false) => Finding::warn(Area::Permissions, name, format!("missing: needed {purpose}"), remedy()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let missing = |held| missing(held, &[BPF, PERFMON]);
        assert_eq!(missing(CapabilitySet::empty()).as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing(CapabilitySet::PERFMON).as_deref(), Some("CAP_BPF"));
        assert_eq!(missing(CapabilitySet::BPF).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(missing(CapabilitySet::BPF | CapabilitySet::PERFMON), None);
        assert_eq!(missing(CapabilitySet::SYS_ADMIN), None);
        assert_eq!(missing(CapabilitySet::all()), None);
    }

    #[test]
    fn only_two_capabilities_are_required() {
        let verdicts = |held| -> Vec<_> { ALL.iter().map(|capability| judge(held, capability).verdict).collect() };
        let (ok, warn, fail) = (Verdict::Ok, Verdict::Warn, Verdict::Fail);
        assert_eq!(verdicts(CapabilitySet::empty()), [fail, fail, warn, warn, warn, warn, warn]);
        assert_eq!(verdicts(CapabilitySet::SYS_ADMIN), [ok, ok, ok, warn, ok, warn, warn]);
        assert_eq!(verdicts(CapabilitySet::all() - CapabilitySet::SYS_ADMIN), [ok, ok, warn, ok, ok, ok, ok]);
    }

    #[test]
    fn missing_landlock_is_no_defect() {
        let verdicts = [true, false].map(|is_there| judge_landlock(is_there).verdict);
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Info]);
    }

    #[test]
    fn remedy_names_all_needed_capabilities() {
        assert!(remedy().contains("setcap cap_sys_admin,cap_sys_ptrace,cap_dac_read_search,cap_sys_nice=ep /"));
    }
}
