//! Waiting for memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{AddAssign, SubAssign};

use crate::model::{CgroupId, Order, Orders, StackId};

/// A number of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    /// Writes the time with a unit and, from µs on, two digits: `17 ns`, `1.50 µs`, `3.25 s`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 3] = ["µs", "ms", "s"];
        if self.0 < 1000 {
            return out.pad(&format!("{} ns", self.0));
        }
        let mut unit = 0;
        let mut scaled = self.0 as f64 / 1000.0;
        while scaled >= 999.995 && unit + 1 < UNITS.len() {
            scaled /= 1000.0;
            unit += 1;
        }
        out.pad(&format!("{scaled:.2} {}", UNITS[unit]))
    }
}

/// What is done to find memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimKind {
    /// A task whose allocation finds too few free pages looks for pages that can go.
    Direct,
    /// A task whose control group is at its limit looks for pages of the group that can go.
    Memcg,
    /// Pages are moved so that free ones lie side by side.
    Compaction,
    /// The kernel's own thread looks for pages that can go before anybody has to.
    Kswapd,
    /// A task sleeps, so that others come to free pages.
    Throttled,
    /// Somebody else looks for pages that can go, as on `madvise(MADV_PAGEOUT)`.
    Other,
}

impl ReclaimKind {
    /// All of it, in the order in which reports list it.
    pub const ALL: &[Self] = &[Self::Direct, Self::Memcg, Self::Compaction, Self::Kswapd, Self::Throttled, Self::Other];

    /// Its name in every report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Memcg => "memcg",
            Self::Compaction => "compaction",
            Self::Kswapd => "kswapd",
            Self::Throttled => "throttled",
            Self::Other => "other",
        }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Direct => "direct reclaim",
            Self::Memcg => "memcg reclaim",
            Self::Compaction => "compaction",
            Self::Kswapd => "kswapd",
            Self::Throttled => "throttled",
            Self::Other => "others",
        }
    }
}

/// A task had to wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// What it did.
    pub work: ReclaimKind,
    /// So many pages side by side were wanted; `None` where there is no such number, or it is not known.
    pub order: Option<Order>,
    /// For whose limit, or, where it was for none, in whose account; `None` where that is not known.
    pub group: Option<CgroupId>,
    /// Where in its program it was.
    pub stack: StackId,
    /// How long.
    pub duration: Nanoseconds,
    /// For how much of that it slept, so that others come to free pages.
    pub throttled: Nanoseconds,
    /// How many pages were looked at.
    pub scanned: u64,
    /// How many pages were freed.
    pub reclaimed: u64,
}

/// How often something waited for memory, and how long. Additive, wrapping as amounts do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallTotals {
    /// How often.
    pub count: u64,
    /// How long, all together.
    pub time: Nanoseconds,
}

impl AddAssign for StallTotals {
    fn add_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_add(other.count);
        self.time.0 = self.time.0.wrapping_add(other.time.0);
    }
}

impl SubAssign for StallTotals {
    fn sub_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.time.0 = self.time.0.wrapping_sub(other.time.0);
    }
}

/// How many waits were how long: by powers of two of a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies([u64; Self::CLASSES]);

impl Latencies {
    /// The last class has all that were longer than 2^30 µs, 18 minutes.
    pub const CLASSES: usize = 32;

    /// Counts one that took so long.
    pub fn add(&mut self, time: Nanoseconds) {
        let microseconds = time.0 / 1000;
        let class = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.0[class.min(Self::CLASSES - 1)] += 1;
    }

    /// Those that there are some of, in order: below how many microseconds they took, and how many they are. What took
    /// less than a microsecond is below 1, and so on by powers of two; of the last class there is no such number.
    pub fn iter(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let class = |(class, &count): (usize, &u64)| ((class + 1 < Self::CLASSES).then(|| 1 << class), count);
        self.0.iter().enumerate().map(class).filter(|(_, count)| *count > 0)
    }

    /// The least of the bounds of [`Self::iter`] in microseconds below which at least the share `share` of all waits is;
    /// `None` where there is none.
    #[must_use]
    pub fn below(&self, share: f64) -> Option<u64> {
        let wanted = share * self.0.iter().sum::<u64>() as f64;
        let mut sum = 0;
        self.iter().find_map(|(below, count)| {
            sum += count;
            (sum as f64 >= wanted).then_some(below)
        })?
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_add(theirs));
    }

    fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours = ours.wrapping_sub(theirs));
    }
}

/// What is known of all waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallStats {
    /// How often, and how long.
    pub stalls: StallTotals,
    /// The longest.
    pub longest: Nanoseconds,
    /// For how much of the time tasks slept.
    pub throttled: Nanoseconds,
    /// How many pages were looked at.
    pub scanned: u64,
    /// How many pages were freed.
    pub reclaimed: u64,
    /// How many were how long.
    pub latencies: Latencies,
    /// How many pages side by side they were for.
    pub orders: Orders,
}

impl StallStats {
    /// Counts one.
    pub fn add(&mut self, stall: &Stall) {
        let one = StallTotals { count: 1, time: stall.duration };
        self.stalls += one;
        self.orders.add(stall.order, one);
        self.longest = self.longest.max(stall.duration);
        self.throttled.0 += stall.throttled.0;
        self.scanned += stall.scanned;
        self.reclaimed += stall.reclaimed;
        self.latencies.add(stall.duration);
    }

    /// Adds those of others.
    pub fn merge(&mut self, other: &Self) {
        self.stalls += other.stalls;
        self.longest = self.longest.max(other.longest);
        self.throttled.0 = self.throttled.0.wrapping_add(other.throttled.0);
        self.scanned = self.scanned.wrapping_add(other.scanned);
        self.reclaimed = self.reclaimed.wrapping_add(other.reclaimed);
        self.latencies.merge(&other.latencies);
        self.orders.merge(&other.orders);
    }

    /// All of them together.
    #[must_use]
    pub fn sum<'books>(books: impl IntoIterator<Item = &'books Self>) -> Self {
        books.into_iter().fold(Self::default(), |mut sum, book| {
            sum.merge(book);
            sum
        })
    }

    /// Those of each kind of work together.
    #[must_use]
    pub fn by_work<'books>(
        books: impl IntoIterator<Item = (ReclaimKind, &'books Self)>,
    ) -> BTreeMap<ReclaimKind, Self> {
        let mut by_work: BTreeMap<ReclaimKind, Self> = BTreeMap::new();
        for (work, book) in books {
            by_work.entry(work).or_default().merge(book);
        }
        by_work
    }

    /// What has come since `earlier`. Which of that was the longest is not known.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_like_a_person_would_write_them() {
        let shown = |time: u64| Nanoseconds(time).to_string();
        assert_eq!(shown(0), "0 ns");
        assert_eq!(shown(999), "999 ns");
        assert_eq!(shown(1500), "1.50 µs");
        assert_eq!(shown(999_995), "1.00 ms");
        assert_eq!(shown(61_000_000_000), "61.00 s");
    }

    #[test]
    fn latencies_are_told_by_the_power_of_two_that_they_are_below() {
        let mut latencies = Latencies::default();
        for time in [0, 999, 1000, 1999, 2000, 4_095_999, 4_096_000, u64::MAX] {
            latencies.add(Nanoseconds(time));
        }
        let shown: Vec<_> = latencies.iter().collect();
        let below = |microseconds, count| (Some(microseconds), count);
        assert_eq!(shown, [below(1, 2), below(2, 2), below(4, 1), below(4096, 1), below(8192, 1), (None, 1)]);
    }

    #[test]
    fn a_share_of_the_waits_is_below_a_bound() {
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

    #[test]
    fn what_came_since_then_is_what_was_added() {
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
