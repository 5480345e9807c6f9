//! What memtrace may do: the capabilities that it holds, and the settings that bind those without them.

use std::env;

use super::{Area, Finding, Release, read};

/// A capability, by its number in include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capability {
    pub(super) name: &'static str,
    number: u32,
    /// Whether CAP_SYS_ADMIN stands for it (`bpf_capable`, `perfmon_capable` and `checkpoint_restore_ns_capable`,
    /// include/linux/capability.h).
    admin_has_it: bool,
    /// What it allows.
    purpose: &'static str,
    /// Whether there is no tracing without it.
    required: bool,
    /// The first release that does well without it, where one does.
    until: Option<Release>,
}

pub(super) const BPF: Capability = Capability {
    name: "CAP_BPF",
    number: 39,
    admin_has_it: true,
    purpose: "to make BPF maps and load BPF programs",
    required: true,
    until: None,
};
pub(super) const PERFMON: Capability = Capability {
    name: "CAP_PERFMON",
    number: 38,
    admin_has_it: true,
    purpose: "to load tracing programs, place probes and hear of mappings",
    required: true,
    until: None,
};
/// Uprobes, which CAP_PERFMON allowed since Linux 5.8, are for CAP_SYS_ADMIN alone since 6.16 and in updates of older
/// kernels (`perf_uprobe_event_init`, kernel/events/core.c; "perf: Revert to requiring CAP_SYS_ADMIN for uprobes").
pub(super) const SYS_ADMIN: Capability = Capability {
    name: "CAP_SYS_ADMIN",
    number: 21,
    admin_has_it: true,
    purpose: "to place probes, on Linux 6.16 and newer and on older kernels with updates of 2025",
    required: false,
    until: None,
};
/// Every capability that memtrace has a use for.
const ALL: [Capability; 7] = [
    BPF,
    PERFMON,
    SYS_ADMIN,
    Capability {
        name: "CAP_SYS_PTRACE",
        number: 19,
        admin_has_it: false,
        purpose: "to look at processes of other users",
        required: false,
        until: None,
    },
    Capability {
        name: "CAP_CHECKPOINT_RESTORE",
        number: 40,
        admin_has_it: true,
        purpose: "to read files that a process has mapped and that were deleted or replaced",
        required: false,
        until: None,
    },
    // `/proc/PID/map_files` is a directory for its owner alone (fs/proc/base.c).
    Capability {
        name: "CAP_DAC_READ_SEARCH",
        number: 2,
        admin_has_it: false,
        purpose: "to read those of other users, and on overlayfs and btrfs any file that they have mapped",
        required: false,
        until: None,
    },
    // Maps counted as locked memory, whoever made them (`bpf_charge_memlock`, kernel/bpf/syscall.c).
    Capability {
        name: "CAP_SYS_RESOURCE",
        number: 24,
        admin_has_it: false,
        purpose: "to raise the limit of locked memory for BPF maps, on Linux before 5.11",
        required: false,
        until: Some((5, 11)),
    },
];

/// The capabilities that memtrace holds.
pub(super) struct Held(u64);

impl Held {
    /// The effective ones, as the text of `/proc/self/status` has them.
    pub(super) fn by(status: Option<&str>) -> Self {
        let effective = status.and_then(|status| status.lines().find_map(|line| line.strip_prefix("CapEff:")));
        Self(effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn has(&self, capability: &Capability) -> bool {
        let bit = |number: u32| self.0 >> number & 1 == 1;
        bit(capability.number) || capability.admin_has_it && bit(SYS_ADMIN.number)
    }

    /// The names of those among `needed` that are not held; `None` where all are.
    pub(super) fn missing(&self, needed: &[Capability]) -> Option<String> {
        let names: Vec<_> = needed.iter().filter(|&one| !self.has(one)).map(|one| one.name).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }
}

/// Those that a release has a use for; all, where it is not known.
fn of_use(release: Option<Release>) -> impl Iterator<Item = &'static Capability> {
    ALL.iter().filter(move |one| match (one.until, release) {
        (Some(until), Some(release)) => release < until,
        _ => true,
    })
}

/// How to get every capability that the running kernel has a use for.
pub(super) fn remedy() -> String {
    remedy_on(super::release())
}

fn remedy_on(release: Option<Release>) -> String {
    let program = env::current_exe().map_or_else(|_| "$(which memtrace)".into(), |path| path.display().to_string());
    // CAP_SYS_ADMIN stands for the others.
    let wanted = of_use(release).filter(|&capability| *capability == SYS_ADMIN || !capability.admin_has_it);
    let names: Vec<_> = wanted.map(|capability| capability.name.to_lowercase()).collect();
    let names = names.join(",");
    format!("run memtrace with sudo, or allow it to all who may run it: sudo setcap {names}=ep {program}")
}

pub(super) fn examine(held: &Held) -> Vec<Finding> {
    let mut findings: Vec<_> = of_use(super::release()).map(|capability| judge(held, capability)).collect();
    for name in ["kernel.perf_event_paranoid", "kernel.unprivileged_bpf_disabled"] {
        let value = read(&format!("/proc/sys/{}", name.replace('.', "/")));
        // Shown because people look for it.
        findings.extend(value.map(|value| {
            Finding::info(Area::Permissions, name, format!("{value} (does not bind those with the capabilities)"))
        }));
    }
    findings
}

fn judge(held: &Held, capability: &Capability) -> Finding {
    let Capability { name, purpose, required, .. } = capability;
    match (held.has(capability), required) {
        (true, _) => Finding::ok(Area::Permissions, name, format!("held, {purpose}")),
        (false, true) => Finding::fail(Area::Permissions, name, format!("missing: it is needed {purpose}"), remedy()),
        (false, false) => Finding::warn(Area::Permissions, name, format!("missing: it is needed {purpose}"), remedy()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn held(mask: &str) -> Held {
        Held::by(Some(&format!("Name:\tx\nCapPrm:\tffff\nCapEff:\t{mask}\n")))
    }

    #[test]
    fn the_missing_capabilities_are_named() {
        let missing = |mask| held(mask).missing(&[BPF, PERFMON]);
        assert_eq!(missing("0000000000000000").as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(missing("0000004000000000").as_deref(), Some("CAP_BPF"));
        assert_eq!(missing("0000008000000000").as_deref(), Some("CAP_PERFMON"));
        assert_eq!(missing("000000c000000000"), None);
        assert_eq!(missing("0000000000200000"), None);
        assert_eq!(missing("000001ffffffffff"), None);
        assert_eq!(Held::by(None).missing(&[BPF]).as_deref(), Some("CAP_BPF"));
    }

    #[test]
    fn each_capability_has_its_line_and_only_two_are_required_of_newer_kernels() {
        let of = |mask, release| -> Vec<_> {
            of_use(Some(release)).map(|capability| judge(&held(mask), capability).verdict).collect()
        };
        let verdicts = |mask| of(mask, (5, 11));
        let (ok, warn, fail) = (Verdict::Ok, Verdict::Warn, Verdict::Fail);
        assert_eq!(verdicts("0"), [fail, fail, warn, warn, warn, warn]);
        assert_eq!(verdicts("200000"), [ok, ok, ok, warn, ok, warn]);
        assert_eq!(verdicts("1c000080004"), [ok, ok, warn, ok, ok, ok]);
        assert_eq!(of("200000", (5, 10)), [ok, ok, ok, warn, ok, warn, warn]);
    }

    #[test]
    fn the_remedy_allows_all_of_them() {
        let on = |release| remedy_on(Some(release));
        assert!(on((6, 1)).contains("setcap cap_sys_admin,cap_sys_ptrace,cap_dac_read_search=ep /"));
        assert!(on((5, 10)).contains("setcap cap_sys_admin,cap_sys_ptrace,cap_dac_read_search,cap_sys_resource=ep /"));
    }
}
