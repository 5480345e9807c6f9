//! Values of the counters of a thread.

use std::iter::Sum;

use super::counter::UsageCounter;

/// Values of all counters of a thread, since its start or within an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage([u64; UsageCounter::COUNT]);

impl ThreadUsage {
    /// Returns the value of a counter.
    #[must_use]
    pub const fn get(&self, counter: UsageCounter) -> u64 {
        self.0[counter as usize]
    }

    /// Sets the value of a counter.
    pub const fn set(&mut self, counter: UsageCounter, value: u64) {
        self.0[counter as usize] = value;
    }

    /// Returns the usage with these values. All other counters are 0.
    #[must_use]
    pub fn of(values: &[(UsageCounter, u64)]) -> Self {
        let mut usage = Self::default();
        for &(counter, value) in values {
            usage.set(counter, value);
        }
        usage
    }

    /// Returns the sum of `self` and `other` for each counter.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the increase of each counter since `earlier`; 0 for a counter that has not grown.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Returns the larger value of each counter.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// Returns the smaller value of each counter.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.with(other, u64::min)
    }

    /// Returns the usage with the counters that `is_kept` accepts. All other counters are 0.
    #[must_use]
    pub fn only(self, is_kept: fn(UsageCounter) -> bool) -> Self {
        let mut usage = Self::default();
        for counter in UsageCounter::ALL.into_iter().filter(|counter| is_kept(*counter)) {
            usage.set(counter, self.get(counter));
        }
        usage
    }

    /// Returns allocated minus freed bytes.
    #[must_use]
    pub const fn net(&self) -> i64 {
        let allocated = self.get(UsageCounter::AllocBytes);
        allocated.wrapping_sub(self.get(UsageCounter::FreeBytes)).cast_signed()
    }

    /// Returns the processor time, in nanoseconds.
    #[must_use]
    pub const fn processor_time(&self) -> u64 {
        self.get(UsageCounter::UserTime).saturating_add(self.get(UsageCounter::SystemTime))
    }

    fn with(mut self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            *ours = combine(*ours, theirs);
        }
        self
    }
}

impl Sum for ThreadUsage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), Self::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_sum_to_the_difference() {
        let early = ThreadUsage::of(&[(UsageCounter::AllocBytes, 10), (UsageCounter::FreeBytes, 30)]);
        let late = ThreadUsage::of(&[(UsageCounter::AllocBytes, 15), (UsageCounter::FreeBytes, 31)]);
        let change = late.since(early);
        assert_eq!((change.net(), early.net(), early.plus(change)), (4, -20, late));
        assert_eq!((early.since(late), early.max(late)), (ThreadUsage::default(), late));
        assert_eq!(early.min(late), early);
    }

    #[test]
    fn some_counters_can_be_left_out() {
        let heap = ThreadUsage::of(&[(UsageCounter::AllocBytes, 10), (UsageCounter::FreeCount, 3)]);
        let all = heap.plus(ThreadUsage::of(&[(UsageCounter::UserTime, 7), (UsageCounter::MajorFaults, 1)]));
        assert_eq!(all.only(UsageCounter::is_of_heap), heap);
    }
}
