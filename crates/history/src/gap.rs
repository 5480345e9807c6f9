//! Gaps: intervals that could not be stored when they ended, and were merged into a later interval.

use std::ops::Range;
use std::time::Duration;

/// A time range of intervals that could not be stored when they ended. The next stored interval includes the
/// changes of these intervals, so that totals at its end are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Start and end of the gap, since the start of the trace.
    pub span: Range<Duration>,
    /// Reason why the first of these intervals could not be stored.
    pub reason: GapReason,
    /// Number of intervals in the gap.
    pub intervals: u64,
}

/// Reason why an interval could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapReason {
    /// The disk is full, or a quota is exhausted.
    DiskFull,
    /// The file has reached its size limit, although old intervals are merged.
    SizeLimit,
    /// Another process has locked the file.
    Locked,
    /// The disk reported an error.
    InputOutput,
    /// Another error of SQLite.
    Other,
}

impl GapReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::DiskFull, Self::SizeLimit, Self::Locked, Self::InputOutput, Self::Other];

    /// Name in the database and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::SizeLimit => "size_limit",
            Self::Locked => "locked",
            Self::InputOutput => "io_error",
            Self::Other => "other",
        }
    }
}
