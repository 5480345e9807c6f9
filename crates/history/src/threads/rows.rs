//! Rows of threads.

use memtrace_model::{OtherThreads, ThreadInterval, ThreadUsage, Tid, UsageCounter};
use rustc_hash::{FxHashMap, FxHashSet};

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

/// Slots for rows. Each thread with a row takes one.
#[derive(Debug)]
pub(super) struct Slots {
    free: usize,
    /// Slots of the last rows of ended threads, which are free from the next interval on.
    free_later: usize,
}

impl Slots {
    pub(super) const fn new(limit: usize) -> Self {
        Self { free: limit, free_later: 0 }
    }

    pub(super) const fn begin_interval(&mut self) {
        self.free += self.free_later;
        self.free_later = 0;
    }

    /// Takes a slot. Returns false if none is free.
    pub(super) const fn take(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= is_free as usize;
        is_free
    }

    pub(super) const fn give_back(&mut self, count: usize) {
        self.free += count;
    }

    const fn give_back_later(&mut self) {
        self.free_later += 1;
    }
}

/// ID and start of a thread.
type ThreadKey = (Tid, u64);

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
    /// The counters could not be read, and no interval contains them.
    Unknown,
    /// The counters could not be read. Earlier intervals may contain them.
    Elsewhere,
    /// The counters could not be read. Earlier intervals may contain a part of them, and another part may be from the
    /// time before the baseline.
    Mixed,
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
    counters: FxHashMap<ThreadKey, Counters>,
    /// Threads that were missing in the previous sampling because they exited during it. They have no rows in the
    /// previous interval, but can still get a last row.
    missing: FxHashMap<ThreadKey, Counters>,
    /// Number of threads without rows at the previous sampling, and the sum of their counters.
    others: OtherThreads,
    /// True if the sum lacks the counters of the heap of some threads. No interval contains these counters.
    others_lack_heap: bool,
}

/// Threads that have exited since the previous sampling.
#[derive(Debug)]
pub(super) struct Exits {
    /// The threads. Some can be missing, and some can have been counted in the previous interval.
    pub(super) threads: Vec<ThreadSample>,
    /// Number of threads that have exited.
    pub(super) count: u64,
}

/// Threads of a process at the end of an interval.
#[derive(Debug, Default)]
pub(super) struct ThreadStep {
    /// Rows with a certain usage: rows of threads with state, and of threads that started in the interval. The threads
    /// run, or have ended.
    pub(super) rows: Vec<ThreadInterval>,
    /// Rows of threads that ran before the interval, but were missing in the previous sampling. If the thread had no
    /// row before, the usage covers the time since its start. If the thread has exited, the previous interval can have
    /// the usage already.
    pub(super) late: Vec<ThreadInterval>,
    /// Number of threads without rows.
    pub(super) others: u64,
    /// Growth of the sum over the threads without rows.
    pub(super) others_growth: ThreadUsage,
    /// Sum of the counters of all running threads.
    pub(super) running: ThreadUsage,
    /// Counters of the heap that could be read for the first time. They include usage from before the interval, so
    /// they belong to no interval.
    pub(super) adopted: ThreadUsage,
    /// Like `adopted`, but earlier intervals may contain some of these counters.
    pub(super) mixed: ThreadUsage,
}

impl Rows {
    /// Returns the state before the first interval of a process. `exits`: threads that end in the first interval.
    pub(super) fn new(threads: &[ThreadSample], exits: &[ThreadSample], origin: Origin, slots: &mut Slots) -> Self {
        let mut rows = Self::default();
        for thread in threads {
            let counters = Counters::before(thread, origin);
            if slots.take() {
                rows.counters.insert(key(thread), counters);
            } else {
                rows.others = plus_thread(rows.others, counters.usage);
                rows.others_lack_heap |= counters.base == HeapBase::Unknown;
            }
        }
        rows.missing.extend(exits.iter().map(|thread| (key(thread), Counters::before(thread, origin))));
        rows
    }

    /// Returns the number of slots that the threads use.
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    /// Ends an interval. `since_ns`: start of the interval since boot, in nanoseconds.
    pub(super) fn observe(
        &mut self,
        threads: Vec<ThreadSample>,
        exits: Exits,
        since_ns: u64,
        slots: &mut Slots,
    ) -> ThreadStep {
        let mut step = ThreadStep::default();
        let missing = std::mem::take(&mut self.missing);
        let (new, exits) = self.observe_rows(threads, exits, &mut step, slots);
        let had_others = self.others.count > 0;
        let (mut others, mut without_row) = (OtherThreads::default(), Vec::new());
        let have_heap = new.iter().all(|thread| thread.has_heap);
        for thread in new {
            let usage = thread.usage_since_start();
            step.running = step.running.plus(usage);
            let is_fresh = thread.thread.start_ns >= since_ns;
            let base = match (is_fresh, had_others) {
                // All counters of a new thread belong to this interval and later ones.
                (true, _) => HeapBase::Known,
                // The thread may have been without a row. Then earlier intervals contain its usage in the sum of
                // threads without rows.
                (false, true) if !thread.has_heap && self.others_lack_heap => HeapBase::Mixed,
                (false, true) if !thread.has_heap => HeapBase::Elsewhere,
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
            step.mixed = step.mixed.plus(growth.only(UsageCounter::is_of_heap));
            step.others_growth = growth.only(|counter| !counter.is_of_heap());
        } else {
            step.others_growth = growth;
        }
        self.others = self.admit(others, without_row, slots);
        // Running threads take the free slots first.
        let mut left = exits.count;
        for thread in exits.threads {
            let is_fresh = thread.thread.start_ns >= since_ns;
            let earlier = missing.get(&key(&thread));
            // The sum of threads without rows can already contain an older thread. Then this thread gets no row.
            let may_have_row = is_fresh || earlier.is_some() || !had_others;
            if left == 0 || !may_have_row || !slots.take() {
                continue;
            }
            left -= 1;
            slots.give_back_later();
            if let Some(earlier) = earlier {
                // The counters of the thread can be in the sum of exited threads already.
                let (_, growth) = earlier.with_base(&thread).advance(&thread);
                step.late.push(row(thread, growth));
            } else {
                let usage = thread.usage_since_start();
                let rows = if is_fresh { &mut step.rows } else { &mut step.late };
                rows.push(row(thread, usage));
            }
        }
        step
    }

    /// Adds the rows of threads with state, and keeps the state of missing threads until the next sampling. Returns the
    /// running and the exited threads without state.
    fn observe_rows(
        &mut self,
        threads: Vec<ThreadSample>,
        exits: Exits,
        step: &mut ThreadStep,
        slots: &mut Slots,
    ) -> (Vec<ThreadSample>, Exits) {
        // A thread that calls execve(2) gets the ID and the start of the first thread, which exits.
        let mut listed: FxHashSet<ThreadKey> =
            if exits.threads.is_empty() { FxHashSet::default() } else { threads.iter().map(key).collect() };
        let mut ended = std::mem::take(&mut self.counters);
        let mut new = Vec::new();
        for thread in threads {
            let Some(earlier) = ended.remove(&key(&thread)) else {
                new.push(thread);
                continue;
            };
            step.running = step.running.plus(thread.usage_after(earlier.usage));
            let (counters, growth) = step.advance(earlier, &thread);
            self.counters.insert(key(&thread), counters);
            step.rows.push(row(thread, growth));
        }
        let mut others = Exits { threads: Vec::new(), count: exits.count };
        for thread in exits.threads.into_iter().filter(|thread| listed.insert(key(thread))) {
            let Some(earlier) = ended.remove(&key(&thread)) else {
                others.threads.push(thread);
                continue;
            };
            let (_, growth) = step.advance(earlier, &thread);
            others.count = others.count.saturating_sub(1);
            slots.give_back_later();
            step.rows.push(row(thread, growth));
        }
        slots.give_back(ended.len());
        self.missing = ended;
        (new, others)
    }

    /// Gives the free slots to threads without rows, for the next intervals. Returns the threads that still have no
    /// row.
    fn admit(
        &mut self,
        mut others: OtherThreads,
        threads: Vec<(ThreadKey, Counters)>,
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

impl ThreadStep {
    /// Returns the counters of a thread at the next sampling, and their growth. Adopts counters of the heap without a base.
    fn advance(&mut self, earlier: Counters, sample: &ThreadSample) -> (Counters, ThreadUsage) {
        let known = earlier.with_base(sample);
        let heap = known.usage.since(earlier.usage);
        match earlier.base {
            HeapBase::Unknown => self.adopted = self.adopted.plus(heap),
            HeapBase::Mixed => self.mixed = self.mixed.plus(heap),
            HeapBase::Known | HeapBase::Elsewhere => {}
        }
        known.advance(sample)
    }
}

impl Counters {
    /// Returns the counters of a thread before the first interval of its process. `sample`: the thread at the first
    /// sampling of the process.
    fn before(sample: &ThreadSample, origin: Origin) -> Self {
        // After the baseline, the counters of the heap begin with the first interval of the process.
        let base = HeapBase::of(sample.has_heap || origin != Origin::Baseline);
        Self { usage: origin.earlier_part(sample.usage_since_start()), base }
    }

    /// Returns the counters at the next sampling, and their growth. A thread that calls execve(2) gets the ID and
    /// the start of the first thread, but keeps its own counters. If its own counters are smaller, the growth is 0
    /// until they reach the counters of the first thread.
    fn advance(self, sample: &ThreadSample) -> (Self, ThreadUsage) {
        let usage = sample.usage_after(self.usage).max(self.usage);
        (Self { usage, ..self }, usage.since(self.usage))
    }

    /// Returns the counters. If the counters of the heap had no base, they are taken from `sample`.
    fn with_base(self, sample: &ThreadSample) -> Self {
        if self.base == HeapBase::Known || !sample.has_heap {
            return self;
        }
        Self { usage: self.usage.max(sample.usage.only(UsageCounter::is_of_heap)), base: HeapBase::Known }
    }
}

const fn key(sample: &ThreadSample) -> ThreadKey {
    (sample.thread.tid, sample.thread.start_ns)
}

fn plus_thread(threads: OtherThreads, usage: ThreadUsage) -> OtherThreads {
    OtherThreads { count: threads.count + 1, usage: threads.usage.plus(usage) }
}

fn row(sample: ThreadSample, usage: ThreadUsage) -> ThreadInterval {
    ThreadInterval { thread: sample.thread, comm: sample.comm, state: sample.state, usage }
}
