//! Rows of threads.

use memtrace_model::{OtherThreads, ThreadInterval, ThreadUsage, Tid, UsageCounter};
use rustc_hash::FxHashMap;

use super::sampling::ThreadSample;

/// Number of free slots. Each thread with a row takes one.
#[derive(Debug)]
pub(super) struct Slots(usize);

impl Slots {
    pub(super) const fn new(limit: usize) -> Self {
        Self(limit)
    }

    /// Takes a slot. Returns false if none is free.
    pub(super) const fn take(&mut self) -> bool {
        let is_free = self.0 > 0;
        self.0 -= is_free as usize;
        is_free
    }

    pub(super) const fn give_back(&mut self, count: usize) {
        self.0 += count;
    }
}

/// Counters of a thread with a row at the previous sampling.
#[derive(Clone, Copy, Debug)]
struct Counters {
    usage: ThreadUsage,
    /// True if the counters of the heap could not be read when the thread got its row. Earlier intervals may
    /// contain their values.
    lacks_heap: bool,
}

/// State of the running threads of a process.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Threads with rows, by ID and start.
    counters: FxHashMap<(Tid, u64), Counters>,
    /// Number of threads without rows at the previous sampling, and the sum of their counters.
    others: OtherThreads,
}

/// Threads of a process at the end of an interval.
#[derive(Debug, Default)]
pub(super) struct ThreadStep {
    /// Rows with a certain usage: of threads with state, and of threads that started in the interval.
    pub(super) rows: Vec<ThreadInterval>,
    /// Rows of threads that ran before the interval, but were missing in the previous sampling. The usage in such a
    /// row covers the time since the start of the thread.
    pub(super) late: Vec<ThreadInterval>,
    /// Number of threads without rows.
    pub(super) others: u64,
    /// Growth of the sum over the threads without rows.
    pub(super) others_growth: ThreadUsage,
    /// Sum of the counters of all running threads.
    pub(super) running: ThreadUsage,
}

impl Rows {
    /// Returns the state before the first interval of a process. `earlier` returns the part of a usage that belongs
    /// to the time before.
    pub(super) fn new(
        threads: &[ThreadSample],
        earlier: impl Fn(ThreadUsage) -> ThreadUsage,
        slots: &mut Slots,
    ) -> Self {
        let mut rows = Self::default();
        for thread in threads {
            let usage = earlier(thread.usage_since_start());
            if slots.take() {
                rows.counters.insert(key(thread), Counters { usage, lacks_heap: false });
            } else {
                rows.others = plus_thread(rows.others, usage);
            }
        }
        rows
    }

    /// Returns the number of slots that the threads use.
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    /// Ends an interval. `since_ns`: start of the interval since boot, in nanoseconds.
    pub(super) fn observe(&mut self, threads: Vec<ThreadSample>, since_ns: u64, slots: &mut Slots) -> ThreadStep {
        let mut step = ThreadStep::default();
        let new = self.observe_rows(threads, &mut step, slots);
        let had_others = self.others.count > 0;
        let (mut others, mut without_row) = (OtherThreads::default(), Vec::new());
        for thread in new {
            let usage = thread.usage_since_start();
            step.running = step.running.plus(usage);
            let is_fresh = thread.thread.start_ns >= since_ns;
            // A thread that started before the interval may have been without a row. Then earlier intervals contain
            // its usage in the sum of such threads.
            let counters = Counters { usage, lacks_heap: !is_fresh && !thread.has_heap };
            if (is_fresh || !had_others) && slots.take() {
                self.counters.insert(key(&thread), counters);
                let rows = if is_fresh { &mut step.rows } else { &mut step.late };
                rows.push(row(thread, usage));
            } else {
                others = plus_thread(others, usage);
                without_row.push((key(&thread), counters));
            }
        }
        step.others = others.count;
        step.others_growth = others.usage.since(self.others.usage);
        self.others = self.admit(others, without_row, slots);
        step
    }

    /// Adds the rows of threads with state, drops the state of the others, and returns the threads without state.
    fn observe_rows(
        &mut self,
        threads: Vec<ThreadSample>,
        step: &mut ThreadStep,
        slots: &mut Slots,
    ) -> Vec<ThreadSample> {
        let mut ended = std::mem::take(&mut self.counters);
        let mut new = Vec::new();
        for thread in threads {
            let Some(earlier) = ended.remove(&key(&thread)) else {
                new.push(thread);
                continue;
            };
            step.running = step.running.plus(thread.usage_after(earlier.usage));
            let (counters, growth) = earlier.advance(&thread);
            self.counters.insert(key(&thread), counters);
            step.rows.push(row(thread, growth));
        }
        slots.give_back(ended.len());
        new
    }

    /// Gives the free slots to threads without rows, for the next intervals. Returns the threads that still have no
    /// row.
    fn admit(
        &mut self,
        mut others: OtherThreads,
        threads: Vec<((Tid, u64), Counters)>,
        slots: &mut Slots,
    ) -> OtherThreads {
        for (key, counters) in threads {
            if !slots.take() {
                break;
            }
            others = OtherThreads { count: others.count - 1, usage: others.usage.since(counters.usage) };
            self.counters.insert(key, counters);
        }
        others
    }
}

impl Counters {
    /// Returns the counters at the next sampling, and their growth. A thread that calls execve(2) gets the ID and
    /// the start of the first thread, but keeps its own counters. If these are smaller, the growth is 0 until they
    /// reach the counters of the first thread.
    fn advance(mut self, sample: &ThreadSample) -> (Self, ThreadUsage) {
        if self.lacks_heap && sample.has_heap {
            self.usage = self.usage.max(sample.usage.only(UsageCounter::is_of_heap));
        }
        let usage = sample.usage_after(self.usage).max(self.usage);
        (Self { usage, lacks_heap: self.lacks_heap && !sample.has_heap }, usage.since(self.usage))
    }
}

const fn key(sample: &ThreadSample) -> (Tid, u64) {
    (sample.thread.tid, sample.thread.start_ns)
}

fn plus_thread(threads: OtherThreads, usage: ThreadUsage) -> OtherThreads {
    OtherThreads { count: threads.count + 1, usage: threads.usage.plus(usage) }
}

fn row(sample: ThreadSample, usage: ThreadUsage) -> ThreadInterval {
    ThreadInterval { thread: sample.thread, comm: sample.comm, state: sample.state, usage }
}
