//! Variances of estimates from sampled blocks. A variance has two quantities: the sums of its low and of its high bits.

use super::{Quantities, Quantity};
use crate::Spread;
use crate::spread::WideSum;

/// Variance of an estimated number of a stack. The variance of freed bytes or blocks is the difference of the variances
/// of the allocated and the held ones, because each sampled block is freed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variance {
    /// Variance of the bytes that are live or held at exit, in bytes squared.
    HeldBytes,
    /// Variance of the allocated bytes, in bytes squared.
    AllocBytes,
    /// Variance of the number of blocks that are live or held at exit.
    HeldCount,
    /// Variance of the number of allocated blocks.
    AllocCount,
}

impl Variance {
    /// Returns the quantity with the sum of the low bits, and the quantity with the sum of the high bits.
    const fn quantities(self) -> [Quantity; 2] {
        match self {
            Self::HeldBytes => [Quantity::HeldBytesVariance, Quantity::HeldBytesVarianceHigh],
            Self::AllocBytes => [Quantity::AllocBytesVariance, Quantity::AllocBytesVarianceHigh],
            Self::HeldCount => [Quantity::HeldCountVariance, Quantity::HeldCountVarianceHigh],
            Self::AllocCount => [Quantity::AllocCountVariance, Quantity::AllocCountVarianceHigh],
        }
    }
}

impl Quantities {
    /// Returns a variance; 0 if the number is exact.
    #[must_use]
    pub const fn variance(&self, variance: Variance) -> u128 {
        self.sum(variance).value()
    }

    /// Adds `more` to a variance. If `more` is 2^72 or larger, a number below 2^72 is added.
    pub fn add_variance(&mut self, variance: Variance, more: u128) {
        let mut sum = self.sum(variance);
        sum += WideSum::of(more);
        *self = self.with_sum(variance, sum);
    }

    /// Returns the quantities with other numbers of samples and other variances. `held`: blocks that are live or held at
    /// exit. `alloc`: allocated blocks.
    #[must_use]
    pub const fn with_spreads(self, held: Spread, alloc: Spread) -> Self {
        self.with(Quantity::HeldSamples, held.samples)
            .with(Quantity::AllocSamples, alloc.samples)
            .with_sum(Variance::HeldBytes, held.bytes_variance)
            .with_sum(Variance::AllocBytes, alloc.bytes_variance)
            .with_sum(Variance::HeldCount, held.count_variance)
            .with_sum(Variance::AllocCount, alloc.count_variance)
    }

    /// Returns the number of samples and the variances of the allocated blocks.
    pub(super) const fn alloc_spread(&self) -> Spread {
        Spread {
            samples: self.get(Quantity::AllocSamples),
            bytes_variance: self.sum(Variance::AllocBytes),
            count_variance: self.sum(Variance::AllocCount),
        }
    }

    const fn sum(&self, variance: Variance) -> WideSum {
        let [low, high] = variance.quantities();
        WideSum { low: self.get(low), high: self.get(high) }
    }

    const fn with_sum(self, variance: Variance, sum: WideSum) -> Self {
        let [low, high] = variance.quantities();
        self.with(low, sum.low).with(high, sum.high)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Variance; 4] = [Variance::HeldBytes, Variance::AllocBytes, Variance::HeldCount, Variance::AllocCount];

    /// Returns quantities with only this variance.
    fn of(variance: Variance, number: u128) -> Quantities {
        let mut quantities = Quantities::ZERO;
        quantities.add_variance(variance, number);
        quantities
    }

    #[test]
    fn each_variance_has_quantities_of_its_own() {
        let mut quantities = Quantities::ZERO;
        for (variance, number) in ALL.into_iter().zip(1_u128..) {
            quantities.add_variance(variance, (number << 68) + number);
        }
        for (variance, number) in ALL.into_iter().zip(1_u128..) {
            assert_eq!(quantities.variance(variance), (number << 68) + number);
        }
        let held = Spread::new(7, 1 << 40, 5);
        let with_spreads = Quantities::ZERO.with_spreads(held, Spread::new(9, 1 << 41, 6));
        let variances = ALL.map(|variance| with_spreads.variance(variance));
        assert_eq!(variances, [1 << 40, 1 << 41, 5, 6]);
        let samples = [Quantity::HeldSamples, Quantity::AllocSamples].map(|quantity| with_spreads.get(quantity));
        assert_eq!((samples, with_spreads.alloc_spread()), ([7, 9], Spread::new(9, 1 << 41, 6)));
    }

    #[test]
    fn the_low_bits_of_a_variance_are_the_first_32() {
        let mut quantities = of(Variance::AllocBytes, 0x1_2345_6789_abcd_ef01);
        assert_eq!(quantities.get(Quantity::AllocBytesVariance), 0xabcd_ef01);
        assert_eq!(quantities.get(Quantity::AllocBytesVarianceHigh), 0x1_2345_6789);
        quantities -= of(Variance::AllocBytes, 0x1_2345_6789_abcd_ef02);
        assert_eq!(quantities.get(Quantity::AllocBytesVariance), u64::MAX);
        assert_eq!(quantities.variance(Variance::AllocBytes), 0, "a negative variance counts as none");
    }

    #[test]
    fn an_impossible_variance_is_limited() {
        let mut quantities = of(Variance::HeldBytes, u128::MAX);
        assert_eq!(quantities.variance(Variance::HeldBytes), (1 << 72) - 1);
        quantities -= of(Variance::HeldBytes, u128::MAX);
        assert!(quantities.is_zero());
    }

    proptest! {
        #[test]
        fn variances_add_up_in_any_order(
            numbers in prop::collection::vec((any::<bool>(), 0_u128..1 << 72), 0..20),
            part_bits in any::<u32>(),
        ) {
            let apply = |sum: &mut Quantities, (is_added, number): (bool, u128)| {
                if is_added {
                    sum.add_variance(Variance::HeldBytes, number);
                } else {
                    *sum -= of(Variance::HeldBytes, number);
                }
            };
            // Two parts of the sum, each in reverse order. A part can be negative.
            let mut parts = [Quantities::ZERO; 2];
            for (index, &number) in numbers.iter().enumerate().rev() {
                apply(&mut parts[(part_bits >> index & 1) as usize], number);
            }
            let [mut sum, other] = parts;
            sum += other;
            let expected = numbers.iter().fold(0_i128, |sum, &(is_added, number)| {
                if is_added { sum + number.cast_signed() } else { sum - number.cast_signed() }
            });
            prop_assert_eq!(sum.variance(Variance::HeldBytes), u128::try_from(expected).unwrap_or(0));
            let mut in_order = Quantities::ZERO;
            numbers.iter().for_each(|&number| apply(&mut in_order, number));
            prop_assert_eq!(in_order, sum);
        }
    }
}
