//! Stalls: tasks that wait for memory.

use std::collections::BTreeMap;

use crate::{CgroupId, Latencies, Nanoseconds, Order, Orders, ReclaimKind, StackId, StallTotals};

/// A stall of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Kind of reclaim.
    pub work: ReclaimKind,
    /// Order of the allocation; `None` if the stall is not for an allocation, or if the order is not known.
    pub order: Option<Order>,
    /// Memcg at its limit in memcg reclaim, else the task's memcg; `None` if it is not known.
    pub group: Option<CgroupId>,
    /// User stack of the task.
    pub stack: StackId,
    /// Duration of the stall.
    pub duration: Nanoseconds,
    /// Time that the task was throttled. The duration includes it.
    pub throttled: Nanoseconds,
    /// Number of scanned inactive pages.
    pub scanned: u64,
    /// Number of reclaimed pages.
    pub reclaimed: u64,
}

/// Statistics of all stalls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallStats {
    /// Number and total time of the stalls.
    pub stalls: StallTotals,
    /// Duration of the longest stall.
    pub longest: Nanoseconds,
    /// Total time that the tasks were throttled.
    pub throttled: Nanoseconds,
    /// Number of scanned inactive pages.
    pub scanned: u64,
    /// Number of reclaimed pages.
    pub reclaimed: u64,
    /// Histogram of the durations.
    pub latencies: Latencies,
    /// Number and total time of the stalls by order.
    pub orders: Orders,
}

impl StallStats {
    /// Counts a stall.
    pub fn add(&mut self, stall: &Stall) {
        let one = StallTotals { count: 1, time: stall.duration };
        self.stalls += one;
        self.orders.add(stall.order, one);
        self.longest = self.longest.max(stall.duration);
        self.throttled.0 = self.throttled.0.wrapping_add(stall.throttled.0);
        self.scanned = self.scanned.wrapping_add(stall.scanned);
        self.reclaimed = self.reclaimed.wrapping_add(stall.reclaimed);
        self.latencies.add(stall.duration);
    }

    /// Adds the stalls in `other`.
    pub fn merge(&mut self, other: &Self) {
        self.stalls += other.stalls;
        self.longest = self.longest.max(other.longest);
        self.throttled.0 = self.throttled.0.wrapping_add(other.throttled.0);
        self.scanned = self.scanned.wrapping_add(other.scanned);
        self.reclaimed = self.reclaimed.wrapping_add(other.reclaimed);
        self.latencies.merge(&other.latencies);
        self.orders.merge(&other.orders);
    }

    /// Returns the sum of all `stats`.
    #[must_use]
    pub fn sum<'stats>(stats: impl IntoIterator<Item = &'stats Self>) -> Self {
        stats.into_iter().fold(Self::default(), |mut sum, stats| {
            sum.merge(stats);
            sum
        })
    }

    /// Returns the sum of the statistics of each kind.
    #[must_use]
    pub fn by_kind<'stats>(
        stats: impl IntoIterator<Item = (ReclaimKind, &'stats Self)>,
    ) -> BTreeMap<ReclaimKind, Self> {
        let mut by_kind: BTreeMap<ReclaimKind, Self> = BTreeMap::new();
        for (kind, stall) in stats {
            by_kind.entry(kind).or_default().merge(stall);
        }
        by_kind
    }

    /// Returns the statistics of the stalls since `earlier`. The longest of these stalls is not known.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.stalls -= earlier.stalls;
        self.longest = Nanoseconds(0);
        self.throttled.0 = self.throttled.0.wrapping_sub(earlier.throttled.0);
        self.scanned = self.scanned.wrapping_sub(earlier.scanned);
        self.reclaimed = self.reclaimed.wrapping_sub(earlier.reclaimed);
        self.latencies.subtract(&earlier.latencies);
        self.orders.subtract(&earlier.orders);
        self
    }
}

/// Key of the stall statistics of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StallKey {
    /// Memcg at its limit in memcg reclaim, else the task's memcg; `None` if it is not known.
    pub group: Option<CgroupId>,
    /// Kind of reclaim.
    pub work: ReclaimKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_stalls_is_what_was_added() {
        let stall = |duration| Stall {
            work: ReclaimKind::Direct,
            order: Order::of(3),
            group: None,
            stack: StackId(9),
            duration: Nanoseconds(duration),
            throttled: Nanoseconds(1),
            scanned: 32,
            reclaimed: 30,
        };
        let mut then = StallStats::default();
        then.add(&stall(5_000_000));
        let mut now = then;
        let mut new = StallStats::default();
        for book in [&mut now, &mut new] {
            book.add(&stall(7000));
        }
        assert_eq!(now.longest, Nanoseconds(5_000_000));
        assert_eq!(now.since(&then), StallStats { longest: Nanoseconds(0), ..new });
        let mut merged = then;
        merged.merge(&new);
        assert_eq!(merged, now);
    }
}
