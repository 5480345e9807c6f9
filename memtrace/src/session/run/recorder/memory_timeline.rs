//! Memory over time, from the intervals of a run.

use std::ops::Range;

use super::Recorder;
use crate::history::{Interval, Subject};
use crate::model::{EventClass, MemoryCounter, MemoryTimeline, MemoryTimelineBuilder, PressureCounter, Tick};

/// Adds an interval.
pub(super) fn add_interval(timeline: &mut MemoryTimelineBuilder, interval: &Interval) {
    for change in &interval.changes {
        let usage = &change.usage;
        timeline.add_change(change.key.class, change.key.image, usage.live().bytes.0, usage.alloc().bytes.0);
    }
    for sample in &interval.samples {
        if let (Subject::Process(image), Some(counter)) = (sample.subject, MemoryCounter::from_name(&sample.counter)) {
            timeline.set(image, counter, sample.value);
        }
        if let (Subject::Machine, Some(counter)) = (sample.subject, PressureCounter::from_name(&sample.counter)) {
            timeline.set_pressure(counter, sample.value);
        }
    }
    for image in &interval.images {
        timeline.set_comm(image.id, &image.comm);
        if image.ended.is_some() {
            timeline.end(image.id);
        }
    }
    for mark in &interval.marks {
        timeline.add_mark(mark.at, &mark.text);
    }
    timeline.end_interval(interval.span.end);
    interval.finished.iter().for_each(|&image| timeline.forget(image));
}

impl Recorder {
    /// Returns the memory over time of a class, if an output shows it. The trace was during `window`.
    pub(in crate::session::run) fn timeline(
        &self,
        class: EventClass,
        sample: u32,
        window: &Range<Tick>,
    ) -> Option<MemoryTimeline> {
        let trace = window.start.since_start()..window.end.since_start();
        Some(self.timeline.as_ref()?.finish(class, sample, &trace))
    }
}
