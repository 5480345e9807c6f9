//! New activity of threads, for a recording.

use std::collections::BTreeMap;

use memtrace_model::{ActivityChanges, CallSums, ImageId, Stacks};

/// Changes for a recording, and the frames of their stacks.
pub(super) struct RecordedChanges {
    pub(super) changes: ActivityChanges,
    pub(super) frames: BTreeMap<ImageId, Stacks>,
    /// Calls of allocators since the last changes, by the number of the name of the function.
    pub(super) calls: BTreeMap<u32, CallSums>,
}

impl RecordedChanges {
    /// Adds later changes.
    pub(super) fn append(&mut self, other: Self) {
        self.changes.append(other.changes);
        for (id, stacks) in other.frames {
            self.frames.entry(id).or_default().merge(stacks);
        }
    }
}
