//! Activity of threads of a run in progress.

use super::Trace;
use crate::model::Tick;
use crate::session::run::activity_changes::RecordedChanges;
use crate::session::run::recorder::Recorder;
use crate::session::run::stack_copies::find_copy;

/// Durations of calls are read for a recording in one tick of this number: each second.
const CALLS_READ_EVERY: u32 = 10;

impl Trace {
    /// Returns true if mappings or the ring of activity have to be read every few milliseconds.
    pub(super) fn has_frequent_work(&self) -> bool {
        let reads_mappings = self.targets.probe_site.is_some() || !self.kernel.finds_vmas();
        reads_mappings || self.activity.is_some()
    }

    /// Reads the activity of threads. The mmap events up to now are applied.
    pub(super) fn read_activity(&mut self) {
        let Some(activity) = &mut self.activity else { return };
        let mut changes = activity.read(&mut self.tracker, &find_copy(self.tables.finished_stacks()));
        if self.recorder.as_ref().is_some_and(Recorder::is_viewed) && self.ticks.is_multiple_of(CALLS_READ_EVERY) {
            changes.calls = activity.take_calls(&self.kernel);
        }
        self.record_activity(changes);
    }

    /// Ends the activity of threads at the end of the trace.
    pub(super) fn finish_activity(&mut self, end: Tick) {
        let Some(activity) = &mut self.activity else { return };
        let finished = self.tables.finished_stacks();
        let end = end.since_start();
        let changes = activity.finish(end, &self.kernel, &mut self.tracker, &find_copy(finished));
        self.record_activity(changes);
    }

    fn record_activity(&mut self, changes: RecordedChanges) {
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
            recorder.add_activity(changes, &mut self.tracker, &find_copy(self.tables.finished_stacks()));
        }
    }
}
