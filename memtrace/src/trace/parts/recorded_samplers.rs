//! Samplers in a history of the run, so that reports of a running recording name them.

use memtrace_history::facts;
use memtrace_model::Samplers;

use crate::trace::context::Context;

/// Samplers of the processes that the history has.
#[derive(Debug, Default)]
pub(super) struct RecordedSamplers(Samplers);

impl RecordedSamplers {
    /// Records the samplers that have changed.
    pub(super) fn update(&mut self, now: &Samplers, context: &mut Context) {
        if let Some(recorder) = &mut context.recorder
            && self.0 != *now
        {
            recorder.add_facts(facts::of_changed_samplers(&self.0, now));
            self.0.clone_from(now);
        }
    }
}
