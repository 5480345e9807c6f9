//! Histogram of the durations of stalls.

use crate::Nanoseconds;

/// Histogram of the durations of stalls, with a bucket for each power of two in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies([u64; Self::CLASSES]);

impl Latencies {
    /// Number of buckets. The last bucket has all stalls of at least 2^30 µs, which are 18 minutes.
    pub const CLASSES: usize = 32;

    /// Counts a stall of this duration.
    pub fn add(&mut self, time: Nanoseconds) {
        let microseconds = time.0 / 1000;
        let class = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.0[class.min(Self::CLASSES - 1)] += 1;
    }

    /// Iterates in order over the buckets that are not empty: the upper bound in microseconds, and the number of
    /// stalls. Stalls below one microsecond have the bound 1. The last bucket has no bound.
    pub fn iter(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let class = |(class, &count): (usize, &u64)| ((class + 1 < Self::CLASSES).then(|| 1 << class), count);
        self.0.iter().enumerate().map(class).filter(|(_, count)| *count > 0)
    }

    /// Returns the smallest upper bound of a bucket in microseconds such that at least `share` of all stalls are
    /// shorter; `None` if there is no such bound.
    #[must_use]
    pub fn below(&self, share: f64) -> Option<u64> {
        let wanted = share * self.0.iter().sum::<u64>() as f64;
        let mut sum = 0;
        self.iter().find_map(|(below, count)| {
            sum += count;
            (sum as f64 >= wanted).then_some(below)
        })?
    }

    /// Returns the number of stalls in each bucket, empty ones included.
    #[must_use]
    pub const fn counts(&self) -> &[u64; Self::CLASSES] {
        &self.0
    }

    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_add(theirs));
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_sub(theirs));
    }
}

impl From<[u64; Latencies::CLASSES]> for Latencies {
    /// Returns the histogram with these numbers of stalls in its buckets.
    fn from(counts: [u64; Self::CLASSES]) -> Self {
        Self(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_power_of_two() {
        let mut latencies = Latencies::default();
        for time in [0, 999, 1000, 1999, 2000, 4_095_999, 4_096_000, u64::MAX] {
            latencies.add(Nanoseconds(time));
        }
        let shown: Vec<_> = latencies.iter().collect();
        let below = |microseconds, count| (Some(microseconds), count);
        assert_eq!(shown, [below(1, 2), below(2, 2), below(4, 1), below(4096, 1), below(8192, 1), (None, 1)]);
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.below(0.5), None);
        for _ in 0..99 {
            latencies.add(Nanoseconds(1_500));
        }
        latencies.add(Nanoseconds(9_000_000));
        assert_eq!(
            (latencies.below(0.5), latencies.below(0.99), latencies.below(1.0)),
            (Some(2), Some(2), Some(16384))
        );
        latencies.add(Nanoseconds(u64::MAX));
        assert_eq!(latencies.below(1.0), None);
    }
}
