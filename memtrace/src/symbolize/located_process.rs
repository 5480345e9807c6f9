//! A process with the totals of its call paths.

use rustc_hash::FxHashMap;

use super::stack_totals::{PathKey, StackTotals};
use crate::model::{LiveChanges, ProcessProfile};

/// Changes of live memory by call path.
pub(super) type ChangesByPath = FxHashMap<PathKey, LiveChanges>;

/// A process, or a group of them, with the totals of its call paths.
#[derive(Debug)]
pub(super) struct LocatedProcess {
    pub(super) process: ProcessProfile,
    pub(super) totals: StackTotals,
    /// Empty unless the process runs at the moment of a report of a recording.
    pub(super) live_changes: ChangesByPath,
}

impl LocatedProcess {
    /// Returns a process without changes over time.
    pub(super) fn new(process: ProcessProfile, totals: StackTotals) -> Self {
        Self { process, totals, live_changes: ChangesByPath::default() }
    }
}
