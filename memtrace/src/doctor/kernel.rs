//! What the running kernel can do.

use std::time::Duration;

use super::permissions::{BPF, Held, PERFMON};
use super::trial::{Refusal, Trial, probe_oneself};
use super::{Area, Finding, RELEASE, Verdict, numbers, read};
use crate::kernel::features;
use crate::mmap_events::MmapEvents;
use crate::procfs;
use crate::session::overhead::probe_cost::ProbeCost;

const NEWER: &str = "boot Linux 5.10 or newer";

const BUILD_IDS: &str = "boot Linux 5.12 or newer";

const TYPES: Trial =
    Trial { subject: "type information", needs: &[], remedy: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y" };
const RINGS: Trial = Trial { subject: "ring buffers", needs: &[BPF], remedy: NEWER };
const UPROBES: Trial = Trial {
    subject: "uprobes",
    needs: &[],
    remedy: "boot a kernel built with CONFIG_UPROBE_EVENTS=y, and mount sysfs at /sys",
};
const KERNEL_HALF: Trial = Trial { subject: "kernel half", needs: &[BPF, PERFMON], remedy: NEWER };
const PROBES: Trial = Trial {
    subject: "probes",
    needs: &[BPF, PERFMON],
    remedy: "boot a kernel built with CONFIG_UPROBE_EVENTS=y; have memtrace's own file on an ordinary file system",
};
const MAPPINGS: Trial =
    Trial { subject: "mapping notices", needs: &[PERFMON], remedy: "boot a kernel built with CONFIG_PERF_EVENTS=y" };

/// Says what the kernel can do, and what a probe costs where one could be tried.
pub(super) fn examine(held: &Held) -> (Vec<Finding>, Option<ProbeCost>) {
    let mut findings = vec![
        release(read(RELEASE).as_deref()),
        TYPES.judge(held, worked(features::type_information(), "what the kernel half reads is described")),
        UPROBES.judge(held, worked(features::user_probes(), "the kernel has them")),
        RINGS.judge(held, worked(features::ring_buffers(), "one was made")),
    ];
    let (half, traps) = kernel_half(held);
    findings.extend(half);
    // Trials tell nothing where no program can be loaded.
    if findings.iter().any(|finding| finding.subject == KERNEL_HALF.subject && finding.verdict == Verdict::Ok) {
        findings.extend(extras().map(Extra::judge));
    }
    findings.push(mapping_notices(held));
    findings.push(lockdown(read("/sys/kernel/security/lockdown").as_deref()));
    findings.extend(compiler(read("/proc/sys/net/core/bpf_jit_enable").as_deref()));
    (findings, traps)
}

fn worked<E: Into<Refusal>>(outcome: Result<(), E>, detail: &'static str) -> Result<&'static str, Refusal> {
    outcome.map(|()| detail).map_err(Into::into)
}

/// Linux 5.8 brought the last thing that the kernel half needs, ring buffers; 5.10 is the oldest that is tested.
/// Distributions bring such things to older kernels, so the release alone condemns none.
fn release(release: Option<&str>) -> Finding {
    const SUBJECT: &str = "release";
    match (release, release.and_then(numbers)) {
        (Some(release), Some(version)) if version >= (5, 10) => {
            Finding::ok(Area::Kernel, SUBJECT, format!("Linux {release}"))
        }
        (Some(release), Some(_)) => {
            let detail = format!("Linux {release} is older than 5.10; it works only if the kernel half can be loaded");
            Finding::warn(Area::Kernel, SUBJECT, detail, NEWER)
        }
        _ => Finding::warn(Area::Kernel, SUBJECT, "the kernel does not tell it", "mount proc at /proc"),
    }
}

/// What some traces need, and others do well without.
struct Extra {
    subject: &'static str,
    is_there: bool,
    with: &'static str,
    without: &'static str,
    since: &'static str,
}

fn extras() -> [Extra; 3] {
    [
        Extra {
            subject: "mappings",
            is_there: features::finds_mappings(),
            with: "the kernel half asks the kernel what a process has mapped",
            without: "the kernel half is told what processes have mapped: stacks taken right after a change may be cut",
            since: "boot Linux 5.17 or newer",
        },
        Extra {
            subject: "marks of probes",
            is_there: features::tells_places(),
            with: "the kernel half is told which probe was hit",
            without: "allocators cannot be told apart, and --hook takes functions only whose arguments lie as in the C \
                      library's",
            since: "boot Linux 5.15 or newer",
        },
        Extra {
            subject: "control groups",
            is_there: features::tells_groups(),
            with: "processes can be chosen by them",
            without: "processes cannot be chosen by them",
            since: "boot Linux 5.16 or newer",
        },
    ]
}

impl Extra {
    fn judge(self) -> Finding {
        if self.is_there {
            Finding::ok(Area::Kernel, self.subject, self.with)
        } else {
            Finding::warn(Area::Kernel, self.subject, self.without, self.since)
        }
    }
}

fn kernel_half(held: &Held) -> ([Finding; 2], Option<ProbeCost>) {
    match features::kernel_half() {
        Ok(mut kernel) => {
            let half = KERNEL_HALF.judge(held, Ok::<_, Refusal>("the verifier accepts every program"));
            let outcome = probe_oneself(&mut kernel);
            let traps = outcome.as_ref().ok().copied();
            let together = kernel.places_together();
            ([half, PROBES.judge(held, outcome.map(|traps| describe(traps, together)))], traps)
        }
        Err(error) => {
            let half = KERNEL_HALF.judge(held, Err::<&str, _>(error.into()));
            let probes = if half.verdict == Verdict::Warn {
                PROBES.judge(held, Err::<&str, _>(Refusal::NotPermitted(String::new())))
            } else {
                Finding::info(Area::Kernel, PROBES.subject, "not tried: that takes the kernel half")
            };
            ([half, probes], None)
        }
    }
}

fn describe(ProbeCost { emulated, stepped }: ProbeCost, together: bool) -> String {
    let (emulated, stepped) = (microseconds(emulated), microseconds(stepped));
    let way = if together {
        "many by one link (uprobe_multi)"
    } else {
        "each by a perf event, so that detaching takes seconds; since Linux 6.10 many go by one link"
    };
    format!(
        "placed in memtrace itself, and removed: a call costs {emulated} where the kernel emulates an instruction, \
         {stepped} where it steps over one; {way}"
    )
}

/// A time in microseconds, in words.
pub(super) fn microseconds(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

/// Without them a trace still works, but for what is mapped while it runs.
fn mapping_notices(held: &Held) -> Finding {
    let outcome = procfs::online_cpus().and_then(|cpus| MmapEvents::open(&cpus)).map(|events| events.has_build_ids());
    match outcome.map_err(|error| Refusal::of("hear of mappings", &error)) {
        Ok(false) => Finding::warn(
            Area::Kernel,
            MAPPINGS.subject,
            "files are told by device and inode: on overlayfs and btrfs some frames will have no name",
            BUILD_IDS,
        ),
        Err(Refusal::Failed(text)) => {
            let detail = format!("{text}; what a target maps during a trace will not be known");
            Finding::warn(Area::Kernel, MAPPINGS.subject, detail, MAPPINGS.remedy)
        }
        other => MAPPINGS.judge(held, other.map(|_| "files are told by their build-ids")),
    }
}

/// Under `confidentiality` no program may read kernel memory (LOCKDOWN_BPF_READ_KERNEL, include/linux/security.h).
fn lockdown(modes: Option<&str>) -> Finding {
    const SUBJECT: &str = "lockdown";
    let chosen = modes.and_then(|modes| Some(modes.split_once('[')?.1.split_once(']')?.0));
    match chosen {
        Some("confidentiality") => Finding::fail(
            Area::Kernel,
            SUBJECT,
            "confidentiality: BPF programs may not read kernel memory",
            "boot with lockdown=integrity, or without lockdown",
        ),
        Some(mode) => Finding::ok(Area::Kernel, SUBJECT, mode),
        None => Finding::info(Area::Kernel, SUBJECT, "not shown: the kernel has none, or securityfs is not mounted"),
    }
}

/// The programs run at every call of an allocator, so it matters whether they are compiled.
fn compiler(enabled: Option<&str>) -> Option<Finding> {
    (enabled? == "0").then(|| {
        let detail = "off: BPF programs are interpreted, and traced programs run slower";
        Finding::warn(Area::Kernel, "BPF compiler", detail, "sudo sysctl net.core.bpf_jit_enable=1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_before_5_10_is_a_warning() {
        let verdict = |text| release(text).verdict;
        assert_eq!(verdict(Some("5.9.16-1-generic")), Verdict::Warn);
        assert_eq!(verdict(Some("4.18.0-553.el8_10.x86_64")), Verdict::Warn);
        assert_eq!(verdict(Some("5.10.0-30-amd64")), Verdict::Ok);
        assert_eq!(verdict(Some("6.1")), Verdict::Ok);
        assert_eq!(verdict(Some("mainline")), Verdict::Warn);
        assert_eq!(verdict(None), Verdict::Warn);
    }

    #[test]
    fn lockdown_matters_only_for_confidentiality() {
        assert_eq!(lockdown(Some("none integrity [confidentiality]")).verdict, Verdict::Fail);
        assert_eq!(lockdown(Some("none [integrity] confidentiality")).detail, "integrity");
        assert_eq!(lockdown(Some("[none] integrity confidentiality")).verdict, Verdict::Ok);
        assert_eq!(lockdown(None).verdict, Verdict::Info);
    }

    #[test]
    fn only_a_compiler_that_is_off_is_worth_a_line() {
        assert_eq!(compiler(Some("0")).map(|finding| finding.verdict), Some(Verdict::Warn));
        assert_eq!(compiler(Some("1")), None);
        assert_eq!(compiler(None), None);
    }
}
