//! Counts of debug files from debuginfod servers.

use std::collections::BTreeMap;

use crate::Bytes;

/// Outcome of the search for the debug file of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebugFileOutcome {
    /// The debug file was in the cache.
    Cached,
    /// A server had the debug file.
    Downloaded,
    /// No server has the debug file.
    NotFound,
    /// A server was too slow.
    TimedOut,
    /// The debug file exceeds the size limit.
    TooLarge,
    /// The downloaded file belongs to another build.
    WrongBuildId,
    /// A server could not be reached, or the file could not be stored.
    Failed,
    /// The user ended the search before this object's turn or during its download.
    Skipped,
}

impl DebugFileOutcome {
    /// All outcomes.
    pub const ALL: [Self; 8] = [
        Self::Cached,
        Self::Downloaded,
        Self::NotFound,
        Self::TimedOut,
        Self::TooLarge,
        Self::WrongBuildId,
        Self::Failed,
        Self::Skipped,
    ];

    /// Returns the key in JSON. Text for readers has spaces instead of underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Downloaded => "downloaded",
            Self::NotFound => "not_found",
            Self::TimedOut => "timed_out",
            Self::TooLarge => "too_large",
            Self::WrongBuildId => "wrong_build_id",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Number of objects without debug information, by the outcome of the search for their debug files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugFileCounts {
    counts: BTreeMap<DebugFileOutcome, u64>,
    /// Total size of the downloaded files.
    pub downloaded: Bytes,
}

impl DebugFileCounts {
    /// Counts one object.
    pub fn add(&mut self, outcome: DebugFileOutcome) {
        self.add_many(outcome, 1);
    }

    /// Adds `objects` to the number of objects with this outcome.
    pub fn add_many(&mut self, outcome: DebugFileOutcome, objects: u64) {
        if objects > 0 {
            *self.counts.entry(outcome).or_default() += objects;
        }
    }

    /// Returns the number of objects with `outcome`.
    #[must_use]
    pub fn count(&self, outcome: DebugFileOutcome) -> u64 {
        self.counts.get(&outcome).copied().unwrap_or_default()
    }
}
