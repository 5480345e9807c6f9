//! The threads of a monitored process.

use std::time::Duration;

use memtrace_model::{Comm, ImageId, ProcessInterval, TaskState, ThreadIdentity, ThreadInterval, ThreadUsage};
use rustc_hash::FxHashMap;

use crate::file::text::nanoseconds;
use crate::interval::{Interval, RecordedThread, RecordedThreadUsage, ThreadNumber};

/// Counter that numbers the threads of a recording.
#[derive(Debug, Default)]
pub(in crate::file::threads) struct NumberedThreads {
    last: u64,
}

impl NumberedThreads {
    const fn next(&mut self) -> ThreadNumber {
        self.last += 1;
        ThreadNumber(self.last)
    }
}

/// Threads of a process that have not ended.
#[derive(Debug)]
pub(super) struct ProcessThreads {
    image: ImageId,
    since_boot: Duration,
    known: FxHashMap<ThreadIdentity, KnownThread>,
    /// Number of recorded intervals.
    intervals: u64,
}

/// A thread, with the values that were recorded last.
#[derive(Debug)]
struct KnownThread {
    number: ThreadNumber,
    comm: Comm,
    start_ns: i64,
    state: Option<TaskState>,
    /// Value of [`ProcessThreads::intervals`] in the last interval with the thread.
    last_seen: u64,
}

impl KnownThread {
    fn recorded(&self, image: ImageId, thread: ThreadIdentity, end: Option<Duration>) -> RecordedThread {
        let (number, name, start_ns) = (self.number, self.comm.clone(), self.start_ns);
        RecordedThread { number, image, tid: thread.tid, name, start_ns, end }
    }
}

impl ProcessThreads {
    pub(super) fn new(image: ImageId, since_boot: Duration) -> Self {
        Self { image, since_boot, known: FxHashMap::default(), intervals: 0 }
    }

    /// Records the threads of an interval, and the end of missing threads.
    pub(super) fn record(&mut self, process: &ProcessInterval, numbers: &mut NumberedThreads, interval: &mut Interval) {
        self.intervals += 1;
        // A thread that started and ended within the interval is left out: a process with many short threads would fill
        // the recording. After the exit of a process, such threads are recorded, unless the process has a single
        // thread: the usage of this thread is the usage of the process.
        let has_short_threads = process.has_exited && process.threads.len() > 1;
        for thread in &process.threads {
            if !thread.has_ended() || has_short_threads || self.known.contains_key(&thread.thread) {
                self.record_thread(thread, numbers, interval);
            }
        }
        self.end_missing(process.others.count, interval);
        if !process.has_exited {
            self.end_listed(process, interval);
        }
    }

    /// Records the end of the listed threads that ended in the interval.
    fn end_listed(&mut self, process: &ProcessInterval, interval: &mut Interval) {
        let end = Some(interval.span.end);
        for id in process.threads.iter().filter(|thread| thread.has_ended()).map(|thread| thread.thread) {
            let recorded = self.known.remove(&id).map(|thread| thread.recorded(self.image, id, end));
            interval.monitored.extend(recorded);
        }
    }

    /// Records the end of all threads at the time `at`.
    pub(super) fn end(&mut self, at: Duration, interval: &mut Interval) {
        let mut ended: Vec<_> = self.known.drain().collect();
        ended.sort_unstable_by_key(|(_, thread)| thread.number);
        let ended = ended.into_iter().map(|(id, thread)| thread.recorded(self.image, id, Some(at)));
        interval.monitored.extend(ended);
    }

    fn record_thread(&mut self, thread: &ThreadInterval, numbers: &mut NumberedThreads, interval: &mut Interval) {
        let (id, image) = (thread.thread, self.image);
        let known = self.known.entry(id).or_insert_with(|| KnownThread {
            number: numbers.next(),
            comm: thread.comm.clone(),
            start_ns: start_of(id, self.since_boot, interval.span.end),
            state: None,
            last_seen: 0,
        });
        known.last_seen = self.intervals;
        if known.state.is_none() || known.comm != thread.comm {
            known.comm = thread.comm.clone();
            interval.monitored.push(known.recorded(image, id, None));
        }
        if thread.usage != ThreadUsage::default() || known.state != Some(thread.state) {
            known.state = Some(thread.state);
            let (state, usage) = (thread.state, thread.usage);
            interval.threads.push(RecordedThreadUsage { thread: known.number, state, usage });
        }
    }

    /// Records the end of missing threads. `others`: number of running threads that the interval does not list. At most
    /// this number of the missing threads can still run, so the `others` missing threads that were seen last are kept.
    fn end_missing(&mut self, others: u64, interval: &mut Interval) {
        let now = self.intervals;
        let mut missing: Vec<(u64, ThreadNumber, ThreadIdentity)> = self
            .known
            .iter()
            .filter(|(_, thread)| thread.last_seen < now)
            .map(|(id, thread)| (thread.last_seen, thread.number, *id))
            .collect();
        missing.sort_unstable();
        let ended = (missing.len() as u64).saturating_sub(others);
        for (_, _, id) in missing.into_iter().take(ended as usize) {
            let end = Some(interval.span.end);
            let recorded = self.known.remove(&id).map(|thread| thread.recorded(self.image, id, end));
            interval.monitored.extend(recorded);
        }
    }
}

/// Returns the start of a thread in nanoseconds since the start of the recording. The result is before `first_end`, the
/// end of the first interval with the thread. Without this bound, the resolution of the clock could move the start
/// after `first_end`.
fn start_of(thread: ThreadIdentity, since_boot: Duration, first_end: Duration) -> i64 {
    let start = i64::try_from(thread.start_ns).unwrap_or(i64::MAX).saturating_sub(nanoseconds(since_boot));
    start.min(nanoseconds(first_end) - 1)
}
