//! Choice of the smallest stacks and images. They are merged if there are too many.

use std::collections::BTreeSet;

use memtrace_model::{EventClass, Magnitude, Magnitudes};

/// Minimum number of stacks, or of images, that a history merges at a time.
pub(super) const FEWEST: usize = 16;

/// Divisor of the number of ended images. For each size, the quotient is the number of largest images that are not
/// merged.
const LARGEST: usize = 32;

/// Sizes of an ended image: bytes held at exit, allocated bytes, and time of stalls. Reports order processes by
/// these sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageSizes {
    pub(super) exit: u64,
    pub(super) alloc: u64,
    pub(super) stalls: u64,
    /// True if the OOM killer has ended the image. Such an image ranks above all others.
    pub(super) is_killed: bool,
}

/// Returns the ended images to merge: all but the largest by each size.
pub(super) fn small_images<I: Copy + Ord>(all: &[(I, ImageSizes)]) -> BTreeSet<I> {
    let mut small: BTreeSet<I> = all.iter().map(|(id, _)| *id).collect();
    for size in [|sizes: &ImageSizes| sizes.exit, |sizes: &ImageSizes| sizes.alloc, |sizes: &ImageSizes| sizes.stalls] {
        let mut largest: Vec<_> = all.iter().map(|(id, sizes)| (sizes.is_killed, size(sizes), *id)).collect();
        largest.retain(|&(is_killed, size, _)| is_killed || size > 0);
        largest.sort_unstable_by(|one, other| other.cmp(one));
        largest.iter().take(all.len() / LARGEST).for_each(|(.., id)| _ = small.remove(id));
    }
    small
}

/// Search for the smallest stacks.
pub(super) struct Smallest {
    /// Sums over all stacks.
    all: Magnitudes,
    stacks: Distribution,
}

impl Smallest {
    /// Starts to count stacks. `all`: sums over all stacks of each event class.
    pub(super) fn new(all: Magnitudes) -> Self {
        Self { all, stacks: Distribution::default() }
    }

    /// Counts a stack.
    pub(super) fn count(&mut self, class: EventClass, magnitude: Magnitude) {
        self.stacks.count(weight(&self.all, class, magnitude));
    }

    /// Returns the number of counted stacks.
    pub(super) fn counted(&self) -> usize {
        self.stacks.total()
    }

    /// Chooses the `number` smallest stacks.
    pub(super) fn choose(self, number: usize) -> SmallStacks {
        let (most, smaller) = self.stacks.quantile(number);
        SmallStacks { all: self.all, most, equal: number.saturating_sub(smaller) }
    }
}

/// The chosen stacks: all stacks below the weight `most`, and the first stacks with the weight `most`.
pub(super) struct SmallStacks {
    all: Magnitudes,
    most: Weight,
    /// Number of stacks with the weight `most` that [`Self::includes_next`] will still include.
    equal: usize,
}

impl SmallStacks {
    /// Returns true if the next stack was chosen. The stacks must be in the same order as for [`Smallest::count`].
    pub(super) fn includes_next(&mut self, class: EventClass, magnitude: Magnitude) -> bool {
        let weight = weight(&self.all, class, magnitude);
        let is_equal = weight == self.most && self.equal > 0;
        self.equal -= usize::from(is_equal);
        weight < self.most || is_equal
    }
}

fn weight(all: &Magnitudes, class: EventClass, magnitude: Magnitude) -> Weight {
    Weight::new(all.size(class, magnitude))
}

/// Number of significant bits of a weight: the next larger weight is at most 1.6 % larger.
const MANTISSA: u32 = 7;

/// Weight of a stack as a floating-point number without sign. There are few different weights, so a threshold can
/// be found by counting the stacks of each weight. Sorting the weights would take as much memory as the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u16);

impl Weight {
    const ALL: usize = ((u64::BITS - MANTISSA + 1) << MANTISSA) as usize;

    fn new(number: u64) -> Self {
        let exponent = (u64::BITS - number.leading_zeros()).saturating_sub(MANTISSA);
        // At most MANTISSA bits remain, and the first of them is 1 if the exponent is not 0. So the order of the
        // weights is the order of the numbers.
        Self((exponent << MANTISSA) as u16 + (number >> exponent) as u16)
    }
}

/// Number of stacks with each weight.
struct Distribution {
    stacks: Vec<usize>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { stacks: vec![0; Weight::ALL] }
    }
}

impl Distribution {
    fn count(&mut self, weight: Weight) {
        self.stacks[usize::from(weight.0)] += 1;
    }

    fn total(&self) -> usize {
        self.stacks.iter().sum()
    }

    /// Returns the smallest weight such that at least `least` stacks have this weight or a lower one, and the number of
    /// stacks below this weight.
    fn quantile(&self, least: usize) -> (Weight, usize) {
        let mut smaller = 0;
        for (weight, stacks) in (0..).zip(&self.stacks) {
            if smaller + stacks >= least {
                return (Weight(weight), smaller);
            }
            smaller += stacks;
        }
        (Weight(u16::MAX), smaller)
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Amount, Bytes, Quantities, Quantity};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stacks_are_compared_by_their_shares() {
        let heap = |live, alloc| {
            let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, Amount { bytes: Bytes(live), count: 1 });
            Magnitude::of(EventClass::Heap, &usage.with(Quantity::AllocBytes, alloc))
        };
        let stall = |time| Magnitude::of(EventClass::Reclaim, &Quantities::ZERO.with(Quantity::StallTime, time));
        let stacks = [
            (EventClass::Heap, heap(1000, 0)),
            (EventClass::Heap, heap(0, 1 << 20)),
            (EventClass::Heap, heap(1, 1)),
            (EventClass::Reclaim, stall(7)),
            (EventClass::Reclaim, stall(700)),
        ];
        let mut all = Magnitudes::default();
        stacks.iter().for_each(|(class, magnitude)| all.add(*class, *magnitude));
        let mut smallest = Smallest::new(all);
        stacks.iter().for_each(|(class, magnitude)| smallest.count(*class, *magnitude));
        assert_eq!(smallest.counted(), 5);
        let mut chosen = smallest.choose(2);
        let is_chosen = stacks.map(|(class, magnitude)| chosen.includes_next(class, magnitude));
        assert_eq!(is_chosen, [false, false, true, true, false]);
        let mut equal = Smallest::new({
            let mut all = Magnitudes::default();
            all.add(EventClass::Reclaim, stall(70));
            all
        });
        (0..10).for_each(|_| equal.count(EventClass::Reclaim, stall(7)));
        let mut chosen = equal.choose(4);
        let is_chosen: Vec<_> = (0..10).map(|_| chosen.includes_next(EventClass::Reclaim, stall(7))).collect();
        assert_eq!(is_chosen, [[true; 4].as_slice(), &[false; 6]].concat(), "the first of equal stacks");
    }

    proptest! {
        #[test]
        fn weights_have_the_order_of_numbers(one: u64, bits in 0..64_u32, step in 0..100_u64) {
            let one = one >> bits;
            // The sum saturates at the largest number.
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
            let weight = sorted[least - 1];
            let smaller = sorted.iter().filter(|known| **known < weight).count();
            prop_assert_eq!((distribution.total(), distribution.quantile(least)), (sorted.len(), (weight, smaller)));
        }
    }
}
