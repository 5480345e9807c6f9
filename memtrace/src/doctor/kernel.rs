//! Features of the running kernel.

use std::time::Duration;

use memtrace_host::kernel::features;
use memtrace_host::mmap_events;
use memtrace_host::mmap_events::MmapEvents;
use memtrace_host::privileges::CapabilitySet;
use memtrace_host::procfs;

use super::finding::{Area, Finding, Verdict};
use super::permissions::{BPF, PERFMON};
use super::trial::{Refusal, Trial, probe_own_process};
use crate::run_kit::probe_cost::ProbeCost;

const NEWER: &str = "boot Linux 5.17 or newer";

const TYPES: Trial =
    Trial { subject: "type information", needs: &[], remedy: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y" };
const RINGS: Trial = Trial { subject: "ring buffers", needs: &[BPF], remedy: NEWER };
const UPROBES: Trial = Trial {
    subject: "uprobes",
    needs: &[],
    remedy: "boot a kernel built with CONFIG_UPROBE_EVENTS=y, and mount sysfs at /sys",
};
const BPF_PROGRAMS: Trial = Trial { subject: "BPF programs", needs: &[BPF, PERFMON], remedy: NEWER };
const PROBES: Trial = Trial {
    subject: "probes",
    needs: &[BPF, PERFMON],
    remedy: "boot a kernel built with CONFIG_UPROBE_EVENTS=y; put memtrace's own file on a local file system",
};
const MMAP_EVENTS: Trial = Trial {
    subject: "perf mmap events",
    needs: &[PERFMON],
    remedy: "boot Linux 5.17 or newer, built with CONFIG_PERF_EVENTS=y",
};

/// Examines the kernel. Also returns the cost of a probe; `None` if no probe could be attached.
pub(super) fn examine(held: CapabilitySet) -> (Vec<Finding>, Option<ProbeCost>) {
    let mut findings = vec![
        check_release(procfs::kernel_release().as_deref()),
        TYPES.judge(
            held,
            worked(features::type_information(), "describes the kernel structs that the BPF programs read"),
        ),
        UPROBES.judge(held, worked(features::uprobes(), "supported")),
        RINGS.judge(held, worked(features::ring_buffers(), "created one")),
    ];
    let (programs, probe_cost) = check_programs(held);
    findings.extend(programs);
    if findings.iter().any(|finding| finding.subject == BPF_PROGRAMS.subject && finding.verdict == Verdict::Ok) {
        findings.push(check_cgroups(features::has_cgroups()));
    }
    findings.push(check_mmap_events(held));
    findings.push(check_lockdown(procfs::lockdown_modes().as_deref()));
    findings.extend(check_jit(procfs::sysctl("net.core.bpf_jit_enable").as_deref()));
    (findings, probe_cost)
}

fn worked<E: Into<Refusal>>(outcome: Result<(), E>, detail: &'static str) -> Result<&'static str, Refusal> {
    outcome.map(|()| detail).map_err(Into::into)
}

/// Distributions port features to older kernels, so an old release alone is a warning. If a feature is missing, the
/// verifier refuses the BPF programs.
fn check_release(release: Option<&str>) -> Finding {
    const SUBJECT: &str = "release";
    match (release, release.and_then(procfs::kernel_version)) {
        (Some(release), Some(version)) if version >= features::FIND_VMA => {
            Finding::ok(Area::Kernel, SUBJECT, format!("Linux {release}"))
        }
        (Some(release), Some(_)) => {
            let detail =
                format!("Linux {release} is older than 5.17; tracing works only if the BPF programs can be loaded");
            Finding::warn(Area::Kernel, SUBJECT, detail, NEWER)
        }
        _ => Finding::warn(Area::Kernel, SUBJECT, "not known", "mount proc at /proc"),
    }
}

/// Only `--cgroup` needs cgroups, so their absence is a warning.
fn check_cgroups(are_supported: bool) -> Finding {
    const SUBJECT: &str = "control groups";
    if are_supported {
        Finding::ok(Area::Kernel, SUBJECT, "--cgroup is available")
    } else {
        Finding::warn(Area::Kernel, SUBJECT, "--cgroup is not available", "boot a kernel with CONFIG_CGROUPS=y")
    }
}

fn check_programs(held: CapabilitySet) -> ([Finding; 2], Option<ProbeCost>) {
    match features::load_programs() {
        Ok(mut kernel) => {
            let programs = BPF_PROGRAMS.judge(held, Ok::<_, Refusal>("the verifier accepts every program"));
            let outcome = probe_own_process(&mut kernel);
            let probe_cost = outcome.as_ref().ok().copied();
            let together = kernel.has_uprobe_multi();
            ([programs, PROBES.judge(held, outcome.map(|cost| describe(cost, together)))], probe_cost)
        }
        Err(error) => {
            let programs = BPF_PROGRAMS.judge(held, Err::<&str, _>(error.into()));
            let probes = if programs.verdict == Verdict::Warn {
                PROBES.judge(held, Err::<&str, _>(Refusal::NotPermitted(String::new())))
            } else {
                Finding::info(Area::Kernel, PROBES.subject, "not tried: needs the BPF programs")
            };
            ([programs, probes], None)
        }
    }
}

fn describe(ProbeCost { emulated, stepped }: ProbeCost, together: bool) -> String {
    let (emulated, stepped) = (microseconds(emulated), microseconds(stepped));
    let backend = if together {
        "attached by uprobe_multi links"
    } else {
        "attached by perf events, so detaching takes seconds (uprobe_multi links need Linux 6.10)"
    };
    format!(
        "attached to memtrace itself and removed: a call costs {emulated} if the kernel emulates the instruction, \
         {stepped} if it single-steps it; {backend}"
    )
}

pub(super) fn microseconds(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

/// Without perf mmap events, a trace misses the mappings made during it.
fn check_mmap_events(held: CapabilitySet) -> Finding {
    let outcome = procfs::online_cpus()
        .and_then(|cpus| MmapEvents::open(&cpus, mmap_events::LARGEST_RING))
        .map(|_| "files are identified by build ID");
    match outcome.map_err(|error| Refusal::from_io("open perf mmap events", &error)) {
        Err(Refusal::Failed(text)) => {
            let detail = format!("{text}; mappings made during a trace are missed");
            Finding::warn(Area::Kernel, MMAP_EVENTS.subject, detail, MMAP_EVENTS.remedy)
        }
        other => MMAP_EVENTS.judge(held, other),
    }
}

/// Under `confidentiality`, BPF programs may not read kernel memory (LOCKDOWN_BPF_READ_KERNEL,
/// include/linux/security.h).
fn check_lockdown(modes: Option<&str>) -> Finding {
    const SUBJECT: &str = "lockdown";
    let active = modes.and_then(|modes| Some(modes.split_once('[')?.1.split_once(']')?.0));
    match active {
        Some("confidentiality") => Finding::fail(
            Area::Kernel,
            SUBJECT,
            "confidentiality: BPF programs may not read kernel memory",
            "boot with lockdown=integrity, or without lockdown",
        ),
        Some(mode) => Finding::ok(Area::Kernel, SUBJECT, mode),
        None => {
            Finding::info(Area::Kernel, SUBJECT, "not available: the kernel has none, or securityfs is not mounted")
        }
    }
}

/// BPF programs run at every allocator call, so interpreting them would be slow.
fn check_jit(enabled: Option<&str>) -> Option<Finding> {
    (enabled? == "0").then(|| {
        let detail = "off: BPF programs are interpreted, and traced processes run slower";
        Finding::warn(Area::Kernel, "BPF JIT", detail, "sudo sysctl net.core.bpf_jit_enable=1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_before_5_17_is_a_warning() {
        let verdict = |text| check_release(text).verdict;
        assert_eq!(verdict(Some("5.16.9-1-generic")), Verdict::Warn);
        assert_eq!(verdict(Some("4.18.0-553.el8_10.x86_64")), Verdict::Warn);
        assert_eq!(verdict(Some("5.17.0-1-amd64")), Verdict::Ok);
        assert_eq!(verdict(Some("6.1")), Verdict::Ok);
        assert_eq!(verdict(Some("mainline")), Verdict::Warn);
        assert_eq!(verdict(None), Verdict::Warn);
    }

    #[test]
    fn only_confidentiality_lockdown_fails() {
        assert_eq!(check_lockdown(Some("none integrity [confidentiality]")).verdict, Verdict::Fail);
        assert_eq!(check_lockdown(Some("none [integrity] confidentiality")).detail, "integrity");
        assert_eq!(check_lockdown(Some("[none] integrity confidentiality")).verdict, Verdict::Ok);
        assert_eq!(check_lockdown(None).verdict, Verdict::Info);
    }

    #[test]
    fn only_a_disabled_jit_is_listed() {
        assert_eq!(check_jit(Some("0")).map(|finding| finding.verdict), Some(Verdict::Warn));
        assert_eq!(check_jit(Some("1")), None);
        assert_eq!(check_jit(None), None);
    }
}
