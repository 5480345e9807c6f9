//! Activity of threads of a run in progress.

use super::{Trace, nanoseconds};
use crate::model::Tick;
use crate::session::run::activity::RecordedChanges;
use crate::session::run::recorder::find_copy;

impl Trace {
    /// Reads the activity of threads. The mmap events up to now are applied.
    pub(super) fn read_activity(&mut self) {
        let Some(activity) = &mut self.activity else { return };
        let changes = activity.read(&mut self.tracker, &find_copy(self.tables.finished_stacks()));
        self.record_activity(changes);
    }

    /// Ends the activity of threads at the end of the trace.
    pub(super) fn finish_activity(&mut self, end: Tick) {
        let Some(activity) = &mut self.activity else { return };
        let finished = self.tables.finished_stacks();
        let end = nanoseconds(end.since_start());
        let changes = activity.finish(end, &self.kernel, &mut self.tracker, &find_copy(finished));
        self.record_activity(changes);
    }

    fn record_activity(&mut self, changes: RecordedChanges) {
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.has_file()) {
            let _ = (recorder, changes);
        }
    }
}
