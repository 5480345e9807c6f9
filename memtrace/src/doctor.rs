//! What this kernel, these permissions and this target allow, found by trying where it can be tried.

mod allocators;
mod kernel;
mod namespaces;
mod naming;
mod permissions;
mod process;
mod trial;

use std::fs;

use crate::model::Pid;
use crate::report::plain;
use permissions::Held;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What it belongs to; says what a failure of it means for a run.
    pub(crate) area: Area,
    /// What was looked at, in a word or three: `ring buffers`.
    pub(crate) subject: String,
    /// Whether it is as memtrace needs it.
    pub(crate) verdict: Verdict,
    /// What was found, in one line.
    pub(crate) detail: String,
    /// What to do about it, exactly; given where the verdict is not good, and only there.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    fn ok(area: Area, subject: &str, detail: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Ok, detail.as_ref(), None)
    }

    fn info(area: Area, subject: &str, detail: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Info, detail.as_ref(), None)
    }

    fn warn(area: Area, subject: &str, detail: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Warn, detail.as_ref(), Some(remedy.as_ref()))
    }

    fn fail(area: Area, subject: &str, detail: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Fail, detail.as_ref(), Some(remedy.as_ref()))
    }

    /// Names of a target's files and processes are in the texts: they must neither break the line nor steer a terminal.
    fn new(area: Area, subject: &str, verdict: Verdict, detail: &str, remedy: Option<&str>) -> Self {
        let plain = |text: &str| plain(text).into_owned();
        Self { area, subject: plain(subject), verdict, detail: plain(detail), remedy: remedy.map(plain) }
    }
}

/// What a finding belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
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
pub(crate) enum Verdict {
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
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) fn examine(pid: Option<Pid>) -> Vec<Finding> {
    let held = Held::by(read("/proc/self/status").as_deref());
    let (mut findings, traps) = kernel::examine(&held);
    findings.extend(permissions::examine(&held));
    findings.extend(namespaces::examine());
    findings.extend(pid.into_iter().flat_map(|pid| process::examine(pid, traps)));
    findings
}

/// The first two numbers of a kernel's release.
type Release = (u32, u32);

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// That of the running kernel, where it tells one.
fn release() -> Option<Release> {
    numbers(&read(RELEASE)?)
}

fn numbers(release: &str) -> Option<Release> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests;
