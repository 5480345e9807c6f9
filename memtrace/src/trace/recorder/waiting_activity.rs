//! Activity of threads that waits for its interval.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_history::{Interval, PathNumber};
use memtrace_model::{ActivityChanges, CallSums, Nanoseconds, Pid, StackEnd, StackId};

/// Ended activity that has not been moved to an interval yet.
#[derive(Debug, Default)]
pub(super) struct WaitingActivity {
    pub(super) changes: ActivityChanges,
    pub(super) calls: BTreeMap<u32, CallSums>,
    /// New stacks of waits: number in the activity, call path, and stack end.
    pub(super) stacks: Vec<(u32, PathNumber, StackEnd)>,
    /// Stacks of waits without frames so far: number in the activity, process and stack id.
    pub(super) without_frames: Vec<(u32, Pid, StackId)>,
    /// Start of tracing, as time since tick 0.
    start: Duration,
}

impl WaitingActivity {
    pub(super) const fn set_start(&mut self, start: Duration) {
        self.start = start;
    }

    /// Moves the activity that ended up to `end` to an interval.
    pub(super) fn move_to(&mut self, interval: &mut Interval, end: Duration) {
        let since_start = end.saturating_sub(self.start);
        let at = Nanoseconds(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX));
        let later = self.changes.split_off(at);
        interval.activity = std::mem::replace(&mut self.changes, later);
        interval.calls = std::mem::take(&mut self.calls);
        interval.activity_stacks = std::mem::take(&mut self.stacks);
    }
}
