//! Boundaries, intervals and marks.

use std::ops::Range;
use std::time::Duration;

use crate::interval::Mark;

/// A boundary between intervals: the totals are known exactly at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boundary {
    /// Row id of the interval that ends here; 0 for the start of the recording.
    pub(super) id: i64,
    pub(super) at: Duration,
}

impl Boundary {
    /// Start of the recording.
    pub const START: Self = Self { id: 0, at: Duration::ZERO };

    /// Returns the time since the start of the trace.
    #[must_use]
    pub const fn at(self) -> Duration {
        self.at
    }
}

/// A recorded interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalRow {
    pub(super) id: i64,
    /// Start and end of the interval, since the start of the trace.
    pub span: Range<Duration>,
    /// Number of original intervals in this interval; 1 if it was not merged.
    pub merged: u64,
}

impl IntervalRow {
    /// Returns the end of the interval.
    #[must_use]
    pub const fn end(&self) -> Boundary {
        Boundary { id: self.id, at: self.span.end }
    }
}

/// A recorded mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRow {
    /// The mark.
    pub mark: Mark,
    /// End of the interval that contains the mark.
    pub boundary: Boundary,
    /// True if the interval ends at the mark, so that totals at the mark are exact.
    pub is_exact: bool,
}
