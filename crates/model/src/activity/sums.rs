//! Totals of spans, locks and calls.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::{Log2, Nanoseconds};

/// Totals of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanSums {
    /// Number of spans that have ended.
    pub count: u64,
    /// Sum of the durations. If spans of the same name nest, the durations of all of them are added.
    pub time: Nanoseconds,
    /// Longest duration of a span.
    pub longest: Nanoseconds,
    /// Sum of the CPU times of the spans.
    pub cpu: Nanoseconds,
    /// Sum of the bytes that the threads allocated in the spans.
    pub allocated: u64,
    /// Number of spans with a lost end. `time` and `longest` use lower bounds of the durations of these spans.
    pub lost_ends: u64,
    /// Number of spans that `count` lacks, because their records were lost.
    pub missing: u64,
}

impl AddAssign for SpanSums {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.time.0 += other.time.0;
        self.longest = self.longest.max(other.longest);
        self.cpu.0 += other.cpu.0;
        self.allocated += other.allocated;
        self.lost_ends += other.lost_ends;
        self.missing += other.missing;
    }
}

/// Totals of a lock. Waits and holds that have not ended count up to the end of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockSums {
    /// Number of waits.
    pub waits: u64,
    /// Sum of the durations of waits.
    pub wait_time: Nanoseconds,
    /// Duration of the longest wait.
    pub longest_wait: Nanoseconds,
    /// Number of holds: times that a thread held the lock.
    pub holds: u64,
    /// Sum of the durations of holds.
    pub hold_time: Nanoseconds,
    /// Duration of the longest hold.
    pub longest_hold: Nanoseconds,
    /// Largest number of threads that waited for the lock at a time.
    pub most_waiters: u64,
}

impl AddAssign for LockSums {
    fn add_assign(&mut self, other: Self) {
        self.waits += other.waits;
        self.wait_time.0 += other.wait_time.0;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.holds += other.holds;
        self.hold_time.0 += other.hold_time.0;
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.most_waiters = self.most_waiters.max(other.most_waiters);
    }
}

/// Totals of the calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSums {
    /// Number of calls.
    pub count: u64,
    /// Sum of the durations of the calls.
    pub time: Nanoseconds,
    /// Number of calls by the binary logarithm of their duration in nanoseconds, in ascending order.
    pub histogram: Vec<(Log2, u64)>,
}

impl AddAssign<&Self> for CallSums {
    fn add_assign(&mut self, other: &Self) {
        self.count += other.count;
        self.time.0 += other.time.0;
        let mut buckets: BTreeMap<Log2, u64> = self.histogram.iter().copied().collect();
        for &(log2, count) in &other.histogram {
            *buckets.entry(log2).or_default() += count;
        }
        self.histogram = buckets.into_iter().collect();
    }
}

impl CallSums {
    /// Returns the calls since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before: BTreeMap<Log2, u64> = earlier.histogram.iter().copied().collect();
        let change = |&(log2, count): &(Log2, u64)| (log2, count - before.get(&log2).copied().unwrap_or(0).min(count));
        Self {
            count: self.count.saturating_sub(earlier.count),
            time: Nanoseconds(self.time.0.saturating_sub(earlier.time.0)),
            histogram: self.histogram.iter().map(change).filter(|(_, count)| *count > 0).collect(),
        }
    }
}
