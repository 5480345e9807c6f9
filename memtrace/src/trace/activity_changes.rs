//! Activity of threads since the last changes, for a recording.

use std::collections::BTreeMap;

use memtrace_model::{ActivityChanges, CallSums, ImageId, Stacks};

/// Changes of the activity for a recording, with the frames of their stacks.
pub(super) struct RecordedChanges {
    pub(super) changes: ActivityChanges,
    pub(super) frames: BTreeMap<ImageId, Stacks>,
    /// Sums of allocator calls since the last changes, by the id of the function's name (`ActivityChanges::names`).
    pub(super) calls: BTreeMap<u32, CallSums>,
}

impl RecordedChanges {
    /// Adds later changes.
    pub(super) fn append(&mut self, other: Self) {
        self.changes.append(other.changes);
        for (id, stacks) in other.frames {
            self.frames.entry(id).or_default().merge(stacks);
        }
        for (function, sums) in other.calls {
            *self.calls.entry(function).or_default() += &sums;
        }
    }
}
