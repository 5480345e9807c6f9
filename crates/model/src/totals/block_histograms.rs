//! Histograms of the blocks of a stack: sizes, lifetimes and ages.

use memtrace_common::wire::TICK_SHIFT;

use crate::{Bytes, Tick};

/// Property of blocks that a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockQuantity {
    /// Size of allocated blocks.
    Size,
    /// Time from the allocation of a freed block to its free.
    Lifetime,
    /// Time since the allocation of a live block. For a block held at exit, the time until the end of its process.
    Age,
}

impl BlockQuantity {
    /// Every quantity.
    pub const ALL: [Self; 3] = [Self::Size, Self::Lifetime, Self::Age];
}

/// Binary logarithm of a size in bytes or of a time in nanoseconds, rounded down. Zero has the logarithm 0.
///
/// Records have times in ticks. All times of less than a tick have the logarithm 19, the largest logarithm of such a
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log2(u8);

impl Log2 {
    /// Converts an integer to a logarithm; `None` above 63.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        if number < u64::BITS { Some(Self(number as u8)) } else { None }
    }

    /// Returns the logarithm as an integer from 0 to 63.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns the logarithm of a size.
    #[must_use]
    pub const fn of_size(size: Bytes) -> Self {
        Self::of(size.0)
    }

    /// Returns the logarithm of the time between two ticks. If `end` is before `begin`, the time is less than a tick.
    #[must_use]
    pub const fn of_time(begin: Tick, end: Tick) -> Self {
        let ticks = end.0.saturating_sub(begin.0) as u64;
        // The bit below the tick gives a time of less than a tick the logarithm 19.
        Self::of(ticks << TICK_SHIFT | 1 << (TICK_SHIFT - 1))
    }

    /// Returns the first value with a higher logarithm, saturating.
    #[must_use]
    pub const fn end(self) -> u64 {
        if self.0 == 63 { u64::MAX } else { 1 << (self.0 + 1) }
    }

    /// Returns the smallest value with this logarithm.
    #[must_use]
    pub const fn start(self) -> u64 {
        if self.0 == 0 { 0 } else { 1 << self.0 }
    }

    const fn of(number: u64) -> Self {
        Self((u64::BITS - 1 - (number | 1).leading_zeros()) as u8)
    }
}

/// Number of blocks of a stack by size, by lifetime and by age. The buckets are binary logarithms.
///
/// There are at most 64 buckets of sizes, 33 of lifetimes and 33 of ages. Most stacks use a few, so only non-zero
/// buckets are stored, in 8 bytes each. Negative counts of a difference are stored as wrapped numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockHistograms(Vec<Bucket>);

/// Bucket of a histogram. The upper byte has the quantity and the logarithm, the other bytes the count as a signed
/// number. The count overflows at 2^55 blocks: at a hundred million blocks a second, this takes ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Bucket(u64);

const COUNT_BITS: u32 = 56;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const LOG2_BITS: u32 = 6;

impl Bucket {
    const fn key(quantity: BlockQuantity, Log2(log2): Log2) -> u8 {
        (quantity as u8) << LOG2_BITS | log2
    }

    const fn new(key: u8, count: u64) -> Self {
        Self((key as u64) << COUNT_BITS | count & COUNT_MASK)
    }

    const fn of_key(self) -> u8 {
        (self.0 >> COUNT_BITS) as u8
    }

    const fn count(self) -> u64 {
        let shift = u64::BITS - COUNT_BITS;
        ((self.0 << shift).cast_signed() >> shift).cast_unsigned()
    }

    fn parts(self) -> (BlockQuantity, Log2, u64) {
        let key = self.of_key();
        let quantity = BlockQuantity::ALL.get(usize::from(key >> LOG2_BITS)).copied();
        (quantity.unwrap_or(BlockQuantity::Age), Log2(key & ((1 << LOG2_BITS) - 1)), self.count())
    }
}

impl BlockHistograms {
    /// Returns true if all counts are 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of buckets that are not 0.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds `change` blocks. A wrapped negative number removes blocks.
    #[inline]
    pub fn count(&mut self, quantity: BlockQuantity, log2: Log2, change: u64) {
        self.add_to(Bucket::key(quantity, log2), change);
    }

    /// Adds the blocks of another stack, or of another shard.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|bucket| self.add_to(bucket.of_key(), bucket.count()));
    }

    /// Subtracts the blocks of another moment, or of another stack.
    pub fn subtract(&mut self, other: &Self) {
        other.0.iter().for_each(|bucket| self.add_to(bucket.of_key(), bucket.count().wrapping_neg()));
    }

    /// Removes all counts of one quantity.
    pub fn clear(&mut self, quantity: BlockQuantity) {
        self.0.retain(|bucket| bucket.parts().0 != quantity);
    }

    /// Removes the negative counts. Changes have negative counts if blocks were moved to another stack.
    pub fn remove_negative(&mut self) {
        self.0.retain(|bucket| bucket.count().cast_signed() > 0);
    }

    /// Iterates over the counts that are not 0, ordered by quantity and logarithm.
    pub fn iter(&self) -> impl Iterator<Item = (BlockQuantity, Log2, u64)> + '_ {
        self.0.iter().map(|bucket| bucket.parts())
    }

    /// Iterates over the counts of one quantity that are not 0, ordered by logarithm.
    pub fn of(&self, quantity: BlockQuantity) -> impl Iterator<Item = (Log2, u64)> + '_ {
        self.iter().filter(move |(of, ..)| *of == quantity).map(|(_, log2, count)| (log2, count))
    }

    /// Returns the number of blocks of one quantity.
    #[must_use]
    pub fn total(&self, quantity: BlockQuantity) -> u64 {
        self.of(quantity).fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }

    #[inline]
    fn add_to(&mut self, key: u8, change: u64) {
        let at = self.0.iter().position(|bucket| bucket.of_key() >= key).unwrap_or(self.0.len());
        match self.0.get_mut(at).filter(|bucket| bucket.of_key() == key) {
            Some(bucket) => {
                *bucket = Bucket::new(key, bucket.count().wrapping_add(change));
                if bucket.count() == 0 {
                    self.0.remove(at);
                }
            }
            None if change & COUNT_MASK == 0 => {}
            None => self.0.insert(at, Bucket::new(key, change)),
        }
    }
}

impl FromIterator<(BlockQuantity, Log2, u64)> for BlockHistograms {
    fn from_iter<T: IntoIterator<Item = (BlockQuantity, Log2, u64)>>(counts: T) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|(quantity, log2, count)| all.count(quantity, log2, count));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn logarithms_are_those_of_the_smallest_value() {
        for (size, log2) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (4095, 11), (u64::MAX, 63)] {
            assert_eq!(Log2::of_size(Bytes(size)).number(), log2, "{size}");
        }
        for (begin, end, log2) in [(5, 5, 19), (5, 4, 19), (5, 6, 20), (5, 7, 21), (5, 8, 21), (0, u32::MAX, 51)] {
            assert_eq!(Log2::of_time(Tick(begin), Tick(end)).number(), log2, "{begin} {end}");
        }
        assert_eq!([0, 1, 19].map(|log2| (Log2(log2).start(), Log2(log2).end())), [(0, 2), (2, 4), (1 << 19, 1 << 20)]);
        assert_eq!(Log2(63).end(), u64::MAX);
        assert_eq!((Log2::from_number(63), Log2::from_number(64)), (Some(Log2(63)), None));
    }

    fn any_counts() -> impl Strategy<Value = Vec<(BlockQuantity, Log2, u64)>> {
        let count = prop_oneof![0..5_u64, Just(u64::MAX), any::<u32>().prop_map(u64::from)];
        let quantity = prop::sample::select(&BlockQuantity::ALL[..]);
        prop::collection::vec((quantity, (0..64_u8).prop_map(Log2), count), 0..40)
    }

    proptest! {
        #[test]
        fn histograms_equal_maps_of_counts(one in any_counts(), other in any_counts()) {
            let mut sums: BTreeMap<(BlockQuantity, Log2), u64> = BTreeMap::new();
            let mut differences = sums.clone();
            for &(quantity, log2, count) in &one {
                for map in [&mut sums, &mut differences] {
                    let number = map.entry((quantity, log2)).or_default();
                    *number = number.wrapping_add(count);
                }
            }
            for &(quantity, log2, count) in &other {
                let sum = sums.entry((quantity, log2)).or_default();
                *sum = sum.wrapping_add(count);
                let difference = differences.entry((quantity, log2)).or_default();
                *difference = difference.wrapping_sub(count);
            }
            let [one, other]: [BlockHistograms; 2] = [one, other].map(|counts| counts.into_iter().collect());
            let (mut sum, mut difference) = (one.clone(), one.clone());
            sum.add(&other);
            difference.subtract(&other);
            for (histograms, expected) in [(&sum, sums), (&difference, differences)] {
                let expected: Vec<_> = expected.into_iter().filter(|(_, count)| *count != 0).collect();
                let counts: Vec<_> = histograms.iter().map(|(quantity, log2, count)| ((quantity, log2), count)).collect();
                prop_assert_eq!(counts, expected);
            }
            sum.subtract(&other);
            prop_assert_eq!(&sum, &one);
            sum.subtract(&one);
            prop_assert!(sum.is_empty());
        }
    }
}
