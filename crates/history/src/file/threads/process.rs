//! A monitored process and its threads.

mod threads;

use std::borrow::Cow;
use std::time::Duration;

use memtrace_model::{
    Comm, ImageEnd, ImageId, ImageStart, ProcessInterval, ProcessValue, ProcessValues, SourceState, ThreadUsage, Tick,
};

use self::threads::ProcessThreads;
use crate::interval::{Interval, RecordedImage, RecordedProcessUsage, Sample, Subject};

pub(super) use self::threads::NumberedThreads;

/// A running process, with the values that were recorded last.
#[derive(Debug)]
pub(super) struct ProcessRows {
    start_ns: u64,
    image: RecordedImage,
    /// True if a fact of the image has not been recorded yet.
    has_new_facts: bool,
    values: ProcessValues,
    /// Last recorded source of the heap counters, and number of threads without rows; `None` before the first
    /// interval.
    state: Option<(SourceState, u64)>,
    threads: ProcessThreads,
}

impl ProcessRows {
    pub(super) fn new(id: ImageId, process: &ProcessInterval, since_boot: Duration) -> Self {
        let start = Duration::from_nanos(process.start_ns).checked_sub(since_boot);
        let image = RecordedImage {
            id,
            comm: Comm::default(),
            exe: None,
            user: None,
            cgroup: None,
            threads: None,
            thread_names: std::collections::BTreeMap::new(),
            start: start.map_or(ImageStart::Unseen, |start| ImageStart::Fork(Tick::at(start))),
            ended: None,
            member_of: None,
        };
        Self {
            start_ns: process.start_ns,
            image,
            has_new_facts: true,
            values: ProcessValues::default(),
            state: None,
            threads: ProcessThreads::new(id, since_boot),
        }
    }

    /// Returns true if `process` is the same process, and not another process with the same pid.
    pub(super) const fn is(&self, process: &ProcessInterval) -> bool {
        self.start_ns == process.start_ns
    }

    /// Records the usage of the process and of its threads, and the values that have changed.
    pub(super) fn record(&mut self, process: &ProcessInterval, numbers: &mut NumberedThreads, interval: &mut Interval) {
        self.record_facts(process, interval);
        self.record_usage(process, interval);
        if !process.has_exited {
            self.record_values(&process.values, interval);
        }
        self.threads.record(process, numbers, interval);
    }

    /// Records the end of the process and of its threads.
    pub(super) fn end(mut self, kind: ImageEnd, at: Duration, interval: &mut Interval) {
        self.threads.end(at, interval);
        let id = self.image.id;
        self.image.ended = Some((kind, Tick::at(at)));
        interval.images.retain(|image| image.id != id);
        interval.images.push(self.image);
        interval.finished.push(id);
    }

    fn record_facts(&mut self, process: &ProcessInterval, interval: &mut Interval) {
        if self.image.comm != process.comm {
            self.image.comm = process.comm.clone();
            self.has_new_facts = true;
        }
        let threads = process.values.get(ProcessValue::Threads).and_then(|threads| u32::try_from(threads).ok());
        self.image.threads = threads.or(self.image.threads);
        if std::mem::take(&mut self.has_new_facts) {
            interval.images.push(self.image.clone());
        }
    }

    fn record_usage(&mut self, process: &ProcessInterval, interval: &mut Interval) {
        let ProcessInterval { source, usage, others, started, .. } = process;
        let ended_threads = process.ended_threads();
        let state = Some((*source, others.count));
        let is_idle = *usage == ThreadUsage::default() && *started == 0 && ended_threads == 0;
        if is_idle && state == self.state {
            return;
        }
        self.state = state;
        interval.process_usage.push(RecordedProcessUsage {
            image: self.image.id,
            usage: *usage,
            ended_threads,
            started_threads: *started,
            other_threads: others.count,
            source: *source,
        });
    }

    fn record_values(&mut self, values: &ProcessValues, interval: &mut Interval) {
        for value in ProcessValue::ALL {
            let Some(number) = values.get(value) else { continue };
            if self.values.get(value) == Some(number) {
                continue;
            }
            self.values.set(value, Some(number));
            interval.samples.push(Sample {
                subject: Subject::Process(self.image.id),
                counter: Cow::Borrowed(value.name()),
                value: number,
            });
        }
    }
}
