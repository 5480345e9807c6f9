//! Weights of samples in fixed point, and rounding at random.
//!
//! A number is rounded up with the probability of its fraction, so the expectation of a sum is exact. The random numbers
//! are hashes of the address and the time of a block, so a sum does not depend on the order of the samples or on the
//! number of shards.

use crate::{AbsAddr, Tick};

/// Number of bits of the fraction of a [`Weight`].
const FRACTION_BITS: u32 = 8;

/// One unit as a [`Weight`].
const ONE: f64 = (1_u64 << FRACTION_BITS) as f64;

/// Seeds of the three roundings that use a key. They make the roundings of one sample independent of each other.
const OF_WEIGHT: u64 = 0x9E6C_63D0_876A_9A9B;
const OF_UNITS: u64 = 0xC2B2_AE3D_27D4_EB4F;
const OF_VARIANCE: u64 = 0x1656_67B1_9E37_79F9;

/// Number of bytes or blocks that a sample stands for, in units of 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight(u64);

impl Weight {
    /// Largest weight in whole units.
    const MOST: Self = Self(u64::MAX << FRACTION_BITS);

    /// Returns the weight of a number of bytes or blocks, rounded at random to a unit of 1/256. A number from 2^56 on
    /// has the weight [`Self::MOST`].
    pub(crate) fn of_units(units: f64, key: u64) -> Self {
        u64::try_from(rounded_at_random(units * ONE, key ^ OF_WEIGHT)).map_or(Self::MOST, Self)
    }

    /// Returns the weight in whole units. It is rounded up with the probability of its fraction, by a hash of `key`.
    pub(crate) const fn rounded(self, key: u64) -> u64 {
        self.rounded_at((mixed(key ^ OF_UNITS) >> (u64::BITS - FRACTION_BITS)) as u8)
    }

    /// Returns the weight in whole units, rounded up if its fraction exceeds `threshold`.
    const fn rounded_at(self, threshold: u8) -> u64 {
        (self.0 >> FRACTION_BITS) + (self.fraction() > threshold) as u64
    }

    /// Returns the variance of [`Self::rounded`], in units squared.
    pub(crate) fn rounding_variance(self) -> f64 {
        let up = f64::from(self.fraction()) / ONE;
        up * (1.0 - up)
    }

    const fn fraction(self) -> u8 {
        self.0 as u8
    }
}

/// Returns the key of the rounding of the sample of a block: a hash of its address and of the time of its allocation.
#[must_use]
pub const fn rounding_key(address: AbsAddr, tick: Tick) -> u64 {
    mixed(address.0 ^ mixed(tick.0 as u64))
}

/// Returns a variance as an integer. It is rounded up with the probability of its fraction, by a hash of `key`.
pub(crate) fn rounded_variance(variance: f64, key: u64) -> u128 {
    rounded_at_random(variance, key ^ OF_VARIANCE)
}

/// Rounds a number up with the probability of its fraction, by a hash of `key`. A number below zero becomes 0, and a
/// number above the largest integer becomes this integer.
fn rounded_at_random(number: f64, key: u64) -> u128 {
    const PRECISION: u32 = f64::MANTISSA_DIGITS;
    let number = number.max(0.0);
    let whole = number.floor();
    let random = (mixed(key) >> (u64::BITS - PRECISION)) as f64 / (1_u64 << PRECISION) as f64;
    let up = u128::from(random < number - whole);
    #[expect(clippy::cast_sign_loss, reason = "the number is at least zero")]
    let whole = whole as u128;
    whole.saturating_add(up)
}

/// Returns a hash of a number: the output function of the generator SplitMix64 (Steele, Lea and Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014).
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hashes_are_the_published_numbers() {
        // The first numbers of SplitMix64 with the seed 1234567. SplitMix64 adds the constant before each output.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let outputs = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for (nth, output) in (0..).zip(outputs) {
            assert_eq!(mixed(STEP.wrapping_mul(nth).wrapping_add(1_234_567)), output);
        }
    }

    #[test]
    fn half_a_unit_is_rounded_up_by_half_of_the_keys() {
        let half = Weight::of_units(10.5, 7);
        assert_eq!(half, Weight(2688));
        let up: u64 = (0..100_000).map(|key| half.rounded(key) - 10).sum();
        // The standard deviation is 158.
        assert!((49_200..=50_800).contains(&up), "{up}");
        assert_eq!(half.rounding_variance(), 0.25);
        assert_eq!(Weight::of_units(12.0, 7).rounding_variance(), 0.0);
    }

    #[test]
    fn small_fractions_of_a_unit_are_kept_on_average() {
        let sum: u64 = (0..100_000).map(|key| Weight::of_units(1.001, key).rounded(key)).sum();
        // The expectation is 100,100, and the standard deviation is 10.
        assert!((100_050..=100_150).contains(&sum), "{sum}");
        let sum: u128 = (0..100_000).map(|key| rounded_variance(0.02, key)).sum();
        // The expectation is 2,000, and the standard deviation is 44.
        assert!((1_780..=2_220).contains(&sum), "{sum}");
    }

    #[test]
    fn impossible_numbers_are_limited() {
        let most = Weight::of_units(f64::INFINITY, 1);
        assert_eq!((most, most.rounded(1), most.rounding_variance()), (Weight::MOST, (1 << 56) - 1, 0.0));
        assert_eq!(Weight::of_units(f64::NAN, 1), Weight(0));
        assert_eq!(Weight::of_units(-3.5, 1).rounded(1), 0);
        assert_eq!((rounded_variance(f64::MAX, 1), rounded_variance(f64::NAN, 1)), (u128::MAX, 0));
    }

    #[test]
    fn keys_depend_on_the_address_and_the_time() {
        let keys = [(16, 1), (16, 2), (32, 1), (1, 16)].map(|(at, tick)| rounding_key(AbsAddr(at), Tick(tick)));
        let distinct: std::collections::BTreeSet<_> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    proptest! {
        #[test]
        fn the_mean_of_all_roundings_is_the_weight(weight in any::<u64>()) {
            let all: u128 = (0..=u8::MAX).map(|threshold| u128::from(Weight(weight).rounded_at(threshold))).sum();
            prop_assert_eq!(all, u128::from(weight));
        }
    }
}
