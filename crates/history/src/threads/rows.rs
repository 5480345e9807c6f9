//! Rows of threads.

use memtrace_model::{OtherThreads, ThreadInterval, ThreadUsage, Tid, UsageCounter};
use rustc_hash::FxHashMap;

use super::sampling::ThreadSample;

/// Start of a process relative to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The process is in the baseline.
    Baseline,
    /// The process started before the baseline, and is monitored only since a later sampling.
    Earlier,
    /// The process started after the baseline.
    Later,
}

impl Origin {
    /// Returns the part of a usage that belongs to the time before the process was monitored. `usage`: counters at
    /// the first sampling of the process.
    pub(super) fn earlier_part(self, usage: ThreadUsage) -> ThreadUsage {
        match self {
            Self::Baseline => usage,
            // The counters of the heap start at attach, so they contain no earlier usage.
            Self::Earlier => usage.only(|counter| !counter.is_of_heap()),
            Self::Later => ThreadUsage::default(),
        }
    }
}

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
    base: HeapBase,
}

/// Counters of the heap that a thread had when it got its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeapBase {
    Known,
    /// They could not be read, and no interval contains them.
    Unknown,
    /// They could not be read. Earlier intervals may contain them.
    Elsewhere,
}

impl HeapBase {
    /// Returns the base of a thread without usage in earlier intervals.
    const fn of(has_heap: bool) -> Self {
        if has_heap { Self::Known } else { Self::Unknown }
    }
}

/// State of the running threads of a process.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Threads with rows, by ID and start.
    counters: FxHashMap<(Tid, u64), Counters>,
    /// Number of threads without rows at the previous sampling, and the sum of their counters.
    others: OtherThreads,
    /// True if the sum has no counters of the heap of some of them, which no interval contains.
    others_lack_heap: bool,
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
    /// Counters of the heap that could be read for the first time. They contain the time before the interval, so they
    /// belong to no interval.
    pub(super) adopted: ThreadUsage,
}

impl Rows {
    /// Returns the state before the first interval of a process.
    pub(super) fn new(threads: &[ThreadSample], origin: Origin, slots: &mut Slots) -> Self {
        let mut rows = Self::default();
        for thread in threads {
            let usage = origin.earlier_part(thread.usage_since_start());
            // After the baseline, the counters of the heap begin with the first interval of the process.
            let base = HeapBase::of(thread.has_heap || origin != Origin::Baseline);
            if slots.take() {
                rows.counters.insert(key(thread), Counters { usage, base });
            } else {
                rows.others = plus_thread(rows.others, usage);
                rows.others_lack_heap |= base == HeapBase::Unknown;
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
        let have_heap = new.iter().all(|thread| thread.has_heap);
        for thread in new {
            let usage = thread.usage_since_start();
            step.running = step.running.plus(usage);
            let is_fresh = thread.thread.start_ns >= since_ns;
            let base = match (is_fresh, had_others) {
                // All its counters belong to this interval, and to later ones.
                (true, _) => HeapBase::Known,
                // It may have been without a row. Then earlier intervals contain its usage in the sum of such threads.
                (false, true) if !thread.has_heap && !self.others_lack_heap => HeapBase::Elsewhere,
                (false, _) => HeapBase::of(thread.has_heap),
            };
            let counters = Counters { usage, base };
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
        let growth = others.usage.since(self.others.usage);
        if self.others_lack_heap {
            self.others_lack_heap = !have_heap;
            step.adopted = step.adopted.plus(growth.only(UsageCounter::is_of_heap));
            step.others_growth = growth.only(|counter| !counter.is_of_heap());
        } else {
            step.others_growth = growth;
        }
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
            let Advance { counters, growth, adopted } = earlier.advance(&thread);
            step.adopted = step.adopted.plus(adopted);
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

/// Counters of a thread with a row at the next sampling.
struct Advance {
    counters: Counters,
    growth: ThreadUsage,
    /// Counters of the heap that no interval contains.
    adopted: ThreadUsage,
}

impl Counters {
    /// Returns the counters at the next sampling, and their growth. A thread that calls execve(2) gets the ID and
    /// the start of the first thread, but keeps its own counters. If these are smaller, the growth is 0 until they
    /// reach the counters of the first thread.
    fn advance(mut self, sample: &ThreadSample) -> Advance {
        let mut adopted = ThreadUsage::default();
        if self.base != HeapBase::Known && sample.has_heap {
            let known = self.usage.max(sample.usage.only(UsageCounter::is_of_heap));
            if self.base == HeapBase::Unknown {
                adopted = known.since(self.usage);
            }
            self = Self { usage: known, base: HeapBase::Known };
        }
        let usage = sample.usage_after(self.usage).max(self.usage);
        Advance { counters: Self { usage, ..self }, growth: usage.since(self.usage), adopted }
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
