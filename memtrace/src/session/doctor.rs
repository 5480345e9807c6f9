//! What this kernel, these permissions and this target allow.

use std::fs;
use std::path::Path;

use crate::model::Pid;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it belongs to; says what a failure of it means for a run.
    pub area: Area,
    /// What was looked at, in a word or three: `ring buffers`.
    pub subject: String,
    /// Whether it is as memtrace needs it.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub detail: String,
    /// What to do about it, exactly; given wherever the verdict is not good.
    pub remedy: Option<String>,
}

/// What a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// What the kernel can do.
    Kernel,
    /// What memtrace may do.
    Permissions,
    /// Whether the target is there.
    Process,
    /// Whether the target is of a kind that can be traced.
    Traceable,
    /// Whether the target has an allocator that memtrace knows.
    Allocator,
}

/// Whether something is as memtrace needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is.
    Ok,
    /// Worth knowing, neither good nor bad.
    Info,
    /// It is, but something will be slower or less exact.
    Warn,
    /// It is not, and tracing cannot work.
    Fail,
}

impl Verdict {
    /// The verdict's name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Looks at everything that tracing needs; with `pid`, at that process too.
#[must_use]
pub fn examine(pid: Option<Pid>) -> Vec<Finding> {
    let mut findings = vec![
        ring_buffers(read("/proc/sys/kernel/osrelease").as_deref()),
        present(
            "kernel type information",
            "/sys/kernel/btf/vmlinux",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y",
        ),
        present(
            "uprobes",
            "/sys/bus/event_source/devices/uprobe/type",
            "boot a kernel built with CONFIG_UPROBE_EVENTS=y, and mount sysfs at /sys",
        ),
        lockdown(read("/sys/kernel/security/lockdown").as_deref()),
        capabilities(read("/proc/self/status").as_deref()),
    ];
    findings.extend(setting("kernel.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid"));
    findings.extend(setting("kernel.unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled"));
    findings.extend(pid.map(|pid| process(pid, read(&format!("/proc/{pid}/status")).as_deref())));
    findings
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

fn finding(area: Area, subject: &str, verdict: Verdict, detail: impl Into<String>, remedy: Option<&str>) -> Finding {
    let (detail, remedy) = (detail.into(), remedy.map(str::to_owned));
    Finding { area, subject: subject.to_owned(), verdict, detail, remedy }
}

/// BPF_MAP_TYPE_RINGBUF came with Linux 5.8 (include/uapi/linux/bpf.h), as did CAP_BPF and CAP_PERFMON.
fn ring_buffers(release: Option<&str>) -> Finding {
    let judge = |verdict, detail: String, remedy| finding(Area::Kernel, "ring buffers", verdict, detail, remedy);
    let version = release.and_then(|release| {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    match (release, version) {
        (Some(release), Some(version)) if version >= (5, 8) => judge(Verdict::Ok, format!("Linux {release}"), None),
        (Some(release), Some(_)) => {
            judge(Verdict::Fail, format!("Linux {release} has none"), Some("boot Linux 5.8 or newer"))
        }
        _ => judge(Verdict::Warn, "the kernel does not tell its release".into(), Some("mount proc at /proc")),
    }
}

fn present(subject: &str, path: &str, remedy: &str) -> Finding {
    if Path::new(path).exists() {
        finding(Area::Kernel, subject, Verdict::Ok, path, None)
    } else {
        finding(Area::Kernel, subject, Verdict::Fail, format!("there is no {path}"), Some(remedy))
    }
}

/// Under `confidentiality` no program may read kernel memory (LOCKDOWN_BPF_READ_KERNEL, include/linux/security.h).
fn lockdown(modes: Option<&str>) -> Finding {
    let chosen = modes.and_then(|modes| Some(modes.split_once('[')?.1.split_once(']')?.0));
    let judge = |verdict, detail: &str, remedy| finding(Area::Kernel, "lockdown", verdict, detail, remedy);
    match chosen {
        Some("confidentiality") => judge(
            Verdict::Fail,
            "confidentiality: BPF programs may not read kernel memory",
            Some("boot with lockdown=integrity, or without lockdown"),
        ),
        Some(mode) => judge(Verdict::Ok, mode, None),
        None => judge(Verdict::Ok, "none", None),
    }
}

/// Loading tracing programs takes CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, which implies both (capabilities(7)).
fn capabilities(status: Option<&str>) -> Finding {
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    const SYS_ADMIN: u64 = 1 << 21;
    let effective = field(status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let missing = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")]
        .into_iter()
        .filter(|(bit, _)| effective & (bit | SYS_ADMIN) == 0)
        .map(|(_, name)| name)
        .collect::<Vec<_>>();
    if missing.is_empty() {
        let held = if effective & SYS_ADMIN != 0 { "CAP_SYS_ADMIN" } else { "CAP_BPF and CAP_PERFMON" };
        finding(Area::Permissions, "capabilities", Verdict::Ok, held, None)
    } else {
        let detail = format!("{} missing", missing.join(" and "));
        finding(Area::Permissions, "capabilities", Verdict::Fail, detail, Some("run memtrace with sudo"))
    }
}

/// A setting that binds only those without the capabilities, shown because people look for it.
fn setting(name: &str, path: &str) -> Option<Finding> {
    let value = read(path)?;
    let detail = format!("{value} (does not bind those with the capabilities)");
    Some(finding(Area::Permissions, name, Verdict::Info, detail, None))
}

fn process(pid: Pid, status: Option<&str>) -> Finding {
    let subject = format!("process {pid}");
    let Some(name) = field(status, "Name") else {
        let remedy =
            "`pgrep -a NAME` finds a program's pid; for a process in a container, give the pid that the host sees";
        return finding(Area::Process, &subject, Verdict::Fail, "there is no such process", Some(remedy));
    };
    match field(status, "Tgid").and_then(|tgid| tgid.parse::<u32>().ok()) {
        Some(tgid) if tgid != pid.0 => {
            let detail = format!("{name} is a thread of process {tgid}");
            finding(Area::Traceable, &subject, Verdict::Fail, detail, Some(&format!("give --pid {tgid}")))
        }
        _ => finding(Area::Process, &subject, Verdict::Ok, name, None),
    }
}

/// A field of `/proc/PID/status`.
fn field<'text>(status: Option<&'text str>, name: &str) -> Option<&'text str> {
    status?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_buffers_need_linux_5_8() {
        let verdict = |release| ring_buffers(release).verdict;
        assert_eq!(verdict(Some("5.7.19-200.fc32.x86_64")), Verdict::Fail);
        assert_eq!(verdict(Some("4.19.0-26-amd64")), Verdict::Fail);
        assert_eq!(verdict(Some("5.8.0-1-generic")), Verdict::Ok);
        assert_eq!(verdict(Some("5.10.0-32-amd64")), Verdict::Ok);
        assert_eq!(verdict(Some("6.1")), Verdict::Ok);
        assert_eq!(verdict(Some("mainline")), Verdict::Warn);
        assert_eq!(verdict(None), Verdict::Warn);
    }

    #[test]
    fn lockdown_matters_only_for_confidentiality() {
        assert_eq!(lockdown(Some("none integrity [confidentiality]")).verdict, Verdict::Fail);
        assert_eq!(lockdown(Some("none [integrity] confidentiality")).detail, "integrity");
        assert_eq!(lockdown(Some("[none] integrity confidentiality")).verdict, Verdict::Ok);
        assert_eq!(lockdown(None).verdict, Verdict::Ok);
    }

    #[test]
    fn the_missing_capabilities_are_named() {
        let detail = |mask: &str| capabilities(Some(&format!("Name:\tx\nCapPrm:\tffff\nCapEff:\t{mask}\n"))).detail;
        assert_eq!(detail("0000000000000000"), "CAP_BPF and CAP_PERFMON missing");
        assert_eq!(detail("0000004000000000"), "CAP_BPF missing");
        assert_eq!(detail("0000008000000000"), "CAP_PERFMON missing");
        assert_eq!(detail("000000c000000000"), "CAP_BPF and CAP_PERFMON");
        assert_eq!(detail("0000000000200000"), "CAP_SYS_ADMIN");
        assert_eq!(detail("000001ffffffffff"), "CAP_SYS_ADMIN");
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        let found = process(Pid(12), Some("Name:\tworker\nTgid:\t10\n"));
        assert_eq!((found.area, found.verdict), (Area::Traceable, Verdict::Fail));
        assert_eq!(found.remedy.as_deref(), Some("give --pid 10"));
        let found = process(Pid(10), Some("Name:\tserver\nTgid:\t10\n"));
        assert_eq!((found.area, found.verdict, found.detail.as_str()), (Area::Process, Verdict::Ok, "server"));
        assert_eq!(process(Pid(9), None).verdict, Verdict::Fail);
    }

    #[test]
    fn whatever_is_not_good_has_a_remedy() {
        for finding in examine(Some(Pid(u32::MAX))) {
            let good = matches!(finding.verdict, Verdict::Ok | Verdict::Info);
            assert_eq!(finding.remedy.is_none(), good, "{finding:?}");
        }
    }
}
