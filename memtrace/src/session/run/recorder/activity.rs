//! Activity of threads in a recording.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FindCopy, Recorder};
use crate::model::{ActivityChanges, CallSums, Nanoseconds, Pid, StackEnd, StackId};
use crate::recording::{Interval, PathNumber};
use crate::session::run::activity::RecordedChanges;
use crate::session::track::ProcessTracker;

/// Activity that waits for the interval in which it ended.
#[derive(Debug, Default)]
pub(super) struct WaitingActivity {
    changes: ActivityChanges,
    calls: BTreeMap<u32, CallSums>,
    /// Call paths of the stacks of waits, by number.
    stacks: Vec<(u32, PathNumber, StackEnd)>,
    /// Stacks without frames so far.
    without_frames: Vec<(u32, Pid, StackId)>,
    /// Start of tracing, since the start of the clock.
    start: Duration,
}

impl WaitingActivity {
    pub(super) const fn set_start(&mut self, start: Duration) {
        self.start = start;
    }

    /// Moves what ended up to `end` to an interval.
    pub(super) fn move_to(&mut self, interval: &mut Interval, end: Duration) {
        let since_start = end.saturating_sub(self.start);
        let at = Nanoseconds(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX));
        let later = self.changes.split_off(at);
        interval.activity = std::mem::replace(&mut self.changes, later);
        interval.calls = std::mem::take(&mut self.calls);
        interval.activity_stacks = std::mem::take(&mut self.stacks);
    }
}

impl Recorder {
    /// Adds activity of threads. The mmap events up to now are applied.
    pub(in crate::session::run) fn add_activity(
        &mut self,
        new: RecordedChanges,
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) {
        let RecordedChanges { mut changes, frames, calls } = new;
        for (id, stacks) in frames {
            let generated = tracker.generated_code_of(id);
            if let Some(image) = tracker.images().get(&id) {
                self.stacks.add_unknown(id, image, &stacks, generated.as_ref());
            }
        }
        self.activity.without_frames.append(&mut changes.stacks);
        let without = std::mem::take(&mut self.activity.without_frames);
        let unknown = without.iter().filter(|(.., id)| self.stacks.find(*id).is_none());
        let copies = unknown.map(|&(_, pid, id)| (tracker.latest_id(pid), id)).collect();
        self.add_copies(copies, tracker, find_copy);
        for (number, pid, id) in without {
            match self.stacks.find(id) {
                Some((path, end)) => self.activity.stacks.push((number, path, end)),
                None => self.activity.without_frames.push((number, pid, id)),
            }
        }
        self.activity.changes.append(changes);
        for (name, sums) in calls {
            *self.activity.calls.entry(name).or_default() += &sums;
        }
    }
}
