//! Measurement of the overhead of a run in progress.

use std::time::Instant;

use super::Trace;
use crate::model::LossReason;
use crate::session::observer::Observer;
use crate::session::overhead::Sample;

impl Trace {
    /// Measures the overhead if a period is over, and warns once if it is high.
    pub(super) fn measure_overhead(&mut self, observer: &mut dyn Observer) {
        if self.overhead.as_ref().is_some_and(|overhead| overhead.is_due(Instant::now())) {
            let sample = self.overhead_sample();
            let messages = self.overhead.as_mut().map(|overhead| overhead.update(sample)).unwrap_or_default();
            messages.iter().for_each(|message| observer.note(message));
        }
    }

    pub(super) fn overhead_sample(&mut self) -> Sample {
        let (processor_time, missing) = self.target_time.read(&self.targets, &self.filter, &self.tracker);
        let counters = self.kernel.counters();
        Sample {
            at: Instant::now(),
            calls: self.shards.progress().calls,
            not_recorded: counters.filtered.count + counters.losses.get(LossReason::RingFullAlloc),
            processor_time,
            missing,
        }
    }
}
