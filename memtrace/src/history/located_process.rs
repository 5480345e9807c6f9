//! A process with the totals of its call paths.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::path_totals::{PathKey, StackTotals};
use crate::model::{EventClass, ImageId, LiveChanges, ProcessProfile, StackKey};

/// Changes of live memory of running images over the parts of a run.
pub type LiveChangesByStack = BTreeMap<(EventClass, ImageId), FxHashMap<StackKey, LiveChanges>>;

/// Changes of live memory by call path.
pub(super) type ChangesByPath = FxHashMap<PathKey, LiveChanges>;

/// A process, or a group of them, with the totals of its call paths.
#[derive(Debug)]
pub(super) struct LocatedProcess {
    pub(super) process: ProcessProfile,
    pub(super) totals: StackTotals,
    /// Empty unless the process runs at the moment of a report, and its changes are recorded.
    pub(super) live_changes: ChangesByPath,
}

impl LocatedProcess {
    /// Returns a process without changes over time.
    pub(super) fn new(process: ProcessProfile, totals: StackTotals) -> Self {
        Self { process, totals, live_changes: ChangesByPath::default() }
    }
}
