//! One finding: its area, verdict, detail and remedy.

use memtrace_model::plain;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Area of the check; determines the exit code if the check fails.
    pub(crate) area: Area,
    /// Subject of the check, in one to three words: `ring buffers`.
    pub(crate) subject: String,
    pub(crate) verdict: Verdict,
    /// Result of the check, in one line.
    pub(crate) detail: String,
    /// Exact steps to repair a warning or a failure; `None` for other verdicts.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(area: Area, subject: &str, detail: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Ok, detail.as_ref(), None)
    }

    pub(super) fn info(area: Area, subject: &str, detail: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Info, detail.as_ref(), None)
    }

    pub(super) fn warn(area: Area, subject: &str, detail: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Warn, detail.as_ref(), Some(remedy.as_ref()))
    }

    pub(super) fn fail(area: Area, subject: &str, detail: impl AsRef<str>, remedy: impl AsRef<str>) -> Self {
        Self::new(area, subject, Verdict::Fail, detail.as_ref(), Some(remedy.as_ref()))
    }

    /// Replaces control characters in the texts, which contain names of the target's files and
    /// processes.
    fn new(area: Area, subject: &str, verdict: Verdict, detail: &str, remedy: Option<&str>) -> Self {
        let plain = |text: &str| plain(text).into_owned();
        Self { area, subject: plain(subject), verdict, detail: plain(detail), remedy: remedy.map(plain) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
    /// Features of the kernel.
    Kernel,
    /// Capabilities of memtrace.
    Permissions,
    /// Existence of the target.
    Process,
    /// Kind of the target: a kernel thread, for example, cannot be traced.
    Traceable,
    /// Allocators of the target.
    Allocator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verdict {
    Ok,
    /// Information that is neither good nor bad.
    Info,
    /// Tracing works with a restriction, or the check could not be made.
    Warn,
    /// Tracing cannot work.
    Fail,
}

impl Verdict {
    /// Returns the name that all outputs use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_name_stays_in_its_line() {
        let found = Finding::warn(Area::Process, "process 7", "a\nfail  b\x1b[2J", "kill\r7");
        assert_eq!(found.detail, "a\u{fffd}fail  b\u{fffd}[2J");
        assert_eq!(found.remedy.as_deref(), Some("kill\u{fffd}7"));
    }
}
