//! Order in which stacks of groups are merged.

use crate::history::path_totals::PathUsage;
use crate::model::{EventClass, Quantities, Quantity};

/// Weights of the stacks of one event class. Those with the smallest weights are merged first.
pub(super) struct Weights {
    class: EventClass,
    /// Sum over all groups.
    total: Quantities,
}

impl Weights {
    /// Returns the weights of stacks with the sum `total`.
    pub(super) const fn new(class: EventClass, total: Quantities) -> Self {
        Self { class, total }
    }

    /// Returns the weight of a stack, from the sum of its shares in the numbers by which reports are sorted. A program that does
    /// not free its memory has bytes at exit in most stacks, and its largest sites in others, so neither number can come
    /// first.
    pub(super) fn of(&self, totals: &PathUsage) -> Weight {
        let quantities: &[_] = match self.class.counts_stalls() {
            true => &[Quantity::StallTime, Quantity::StallCount],
            false => &[Quantity::ExitBytes, Quantity::AllocBytes, Quantity::AllocCount],
        };
        let shares = quantities.iter().map(|&quantity| share(totals.usage[quantity], self.total[quantity]));
        Weight::new(shares.sum())
    }
}

/// Number of leading bits of a sum that its weight keeps: the next larger weight is at most 1.6 % larger.
const MANTISSA: u32 = 7;

/// Weight of a stack as a floating-point number without sign. There are so few different weights that a threshold is found
/// by counting them. Sorting them would take as much memory as the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight(u16);

impl Weight {
    const ALL: usize = ((u64::BITS - MANTISSA + 1) << MANTISSA) as usize;

    fn new(number: u64) -> Self {
        let exponent = (u64::BITS - number.leading_zeros()).saturating_sub(MANTISSA);
        // At most MANTISSA bits remain, and the first one is 1 if the exponent is not 0: weights have the order of numbers.
        Self((exponent << MANTISSA) as u16 + (number >> exponent) as u16)
    }
}

/// Number of stacks with each weight.
pub(super) struct Distribution {
    stacks: Vec<usize>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { stacks: vec![0; Weight::ALL] }
    }
}

impl Distribution {
    pub(super) fn count(&mut self, weight: Weight) {
        self.stacks[usize::from(weight.0)] += 1;
    }

    /// Returns the number of stacks.
    pub(super) fn total(&self) -> usize {
        self.stacks.iter().sum()
    }

    /// Returns the smallest weight that at least `least` stacks do not exceed.
    pub(super) fn quantile(&self, least: usize) -> Weight {
        let sums = self.stacks.iter().scan(0, |sum, stacks| {
            *sum += stacks;
            Some(*sum)
        });
        let weight = sums.take_while(|sum| *sum < least).count();
        Weight(u16::try_from(weight).unwrap_or(u16::MAX))
    }
}

/// Returns `part` of `all`, in units of 2^-48.
fn share(part: u64, all: u64) -> u64 {
    const ONE: u128 = 1 << 48;
    let share = u128::from(part) * ONE / u128::from(all.max(1));
    // The quotient is at most ONE.
    share.min(ONE) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn weights_have_the_order_of_numbers(one: u64, bits in 0..64_u32, step in 0..100_u64) {
            let one = one >> bits;
            // The largest number, if the sum exceeds it.
            let other = one.saturating_add((u128::from(one) * u128::from(step) / 100) as u64);
            prop_assert!(Weight::new(one) <= Weight::new(other));
            let is_larger = other - one >= one / 50 && one >= 100;
            prop_assert!(!is_larger || Weight::new(one) < Weight::new(other));
            prop_assert!(usize::from(Weight::new(u64::MAX).0) < Weight::ALL);
        }

        #[test]
        fn quantile_is_the_smallest_weight_that_includes_as_many(
            weights in prop::collection::vec(any::<u16>(), 1..50), least: prop::sample::Index,
        ) {
            let least = least.index(weights.len()) + 1;
            let mut distribution = Distribution::default();
            let mut sorted: Vec<_> = weights.iter().map(|&weight| Weight::new(u64::from(weight))).collect();
            sorted.iter().for_each(|&weight| distribution.count(weight));
            sorted.sort_unstable();
            prop_assert_eq!((distribution.total(), distribution.quantile(least)), (sorted.len(), sorted[least - 1]));
        }
    }
}
