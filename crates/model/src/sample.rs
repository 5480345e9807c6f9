//! Samples of blocks: estimates with their variances.
//!
//! A sampler records a block with a known probability. The recorded block stands for the inverse of this probability, so the
//! expectation of a sum over samples is the sum over all blocks (Horvitz and Thompson, "A Generalization of Sampling Without
//! Replacement from a Finite Universe", 1952). The variance of this sum is estimated by another sum over the same samples.

use std::ops::{AddAssign, Sub, SubAssign};

use crate::weight::{Weight, rounded_variance};
use crate::{AllocatorId, Amount, Bytes, Spread, StackId};

/// Bytes and blocks that a sampled block stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Bytes and blocks, rounded at random to whole ones.
    pub amount: Amount,
    /// Variance of the bytes, including the variance of the rounding, in bytes squared.
    pub bytes_variance: u128,
    /// Variance of the number of blocks, including the variance of the rounding.
    pub count_variance: u128,
}

/// Largest number of blocks that a sample stands for. It limits the weights, which the target chooses, so that the sum of
/// less than 2^32 live samples does not wrap to zero.
const MOST_BLOCKS: u64 = 1 << 32;

/// Largest variance of a sample. With this limit, the sum of 2^31 variances is correct. If the interval is at most 2^31
/// bytes, no variance of bytes exceeds the limit.
const MOST_VARIANCE: u64 = 1 << 63;

/// Largest number of bytes that a sample stands for.
const MOST_BYTES: u64 = (1 << 56) - 1;

/// Numbers of a sample before they are rounded.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    bytes: f64,
    count: f64,
    bytes_variance: f64,
    count_variance: f64,
}

/// Sum of samples, or the difference of two sums. Negative differences are stored as wrapped numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleSum {
    /// Bytes and blocks that the samples stand for.
    pub amount: Amount,
    /// Number of samples, and variances of `amount`.
    pub spread: Spread,
}

/// Change of a stack between two readings of a heap profile that a target keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileChange {
    /// Stack of the allocations.
    pub stack: StackId,
    /// Allocator that the profile belongs to.
    pub allocator: AllocatorId,
    /// Allocations since the earlier reading.
    pub alloc: SampleSum,
    /// Frees since the earlier reading.
    pub free: SampleSum,
}

impl Estimate {
    /// Returns the estimate from `samples` blocks of the same size. A Poisson process selects bytes, one in `interval` bytes
    /// on average, and a block is sampled if one of its bytes is selected. All blocks are sampled if the interval is at
    /// most one byte.
    fn of_poisson(samples: u64, size: Bytes, interval: Bytes) -> Self {
        Self::of_drawn(samples, size, size, interval)
    }

    /// As [`Self::of_poisson`], for a sampler that selects as many bytes as in blocks of `drawn` bytes.
    fn of_drawn(samples: u64, size: Bytes, drawn: Bytes, interval: Bytes) -> Self {
        let bytes = size.0 as f64;
        // A sampler records no empty block. If a target reports an empty block, the block stands for itself.
        if interval.0 <= 1 || drawn.0 == 0 {
            return Self::new(samples, bytes, 1.0, 0.0);
        }
        let ratio = drawn.0 as f64 / interval.0 as f64;
        let sampled = -(-ratio).exp_m1();
        Self::new(samples, bytes / sampled, 1.0 / sampled, (-ratio).exp())
    }

    /// Returns the estimate from a block with a weight in bytes.
    fn of_weighted(size: Bytes, weighted: Bytes) -> Self {
        let bytes = size.0.max(weighted.0) as f64;
        if size.0 == 0 || weighted.0 <= size.0 {
            return Self::new(1, bytes, 1.0, 0.0);
        }
        let (size, missed) = (size.0 as f64, (weighted.0 - size.0) as f64 / bytes);
        Self::new(1, bytes, bytes / size, missed)
    }

    /// Returns the estimate from `samples` blocks. Each stands for `bytes` bytes and `count` blocks. `missed`: probability
    /// that such a block is not sampled.
    fn new(samples: u64, bytes: f64, count: f64, missed: f64) -> Self {
        let samples = samples as f64;
        let count = count.min(MOST_BLOCKS as f64);
        Self {
            bytes: samples * bytes,
            count: samples * count,
            bytes_variance: samples * (bytes * bytes * missed).min(MOST_VARIANCE as f64),
            count_variance: samples * (count * count * missed).min(MOST_VARIANCE as f64),
        }
    }

    /// Returns the estimate in whole bytes and blocks, rounded at random by hashes of `key`.
    fn rounded(self, key: u64) -> Sample {
        // The roundings of bytes and of blocks differ.
        let (of_bytes, of_count) = (key, key.rotate_left(32));
        let bytes = Weight::of_units(self.bytes, of_bytes);
        let count = Weight::of_units(self.count, of_count);
        Sample {
            amount: Amount { bytes: Bytes(bytes.rounded(of_bytes)), count: count.rounded(of_count) },
            bytes_variance: rounded_variance(self.bytes_variance + bytes.rounding_variance(), of_bytes),
            count_variance: rounded_variance(self.count_variance + count.rounding_variance(), of_count),
        }
    }
}

impl Sample {
    /// Returns the sample of a block of `size` bytes, if bytes are selected at random, one in `interval` bytes on average,
    /// and a block with a selected byte is sampled. All blocks are sampled if the interval is at most one byte. `key`:
    /// [`rounding_key`](crate::rounding_key) of the block.
    #[must_use]
    pub fn of_poisson(size: Bytes, interval: Bytes, key: u64) -> Self {
        Estimate::of_poisson(1, size, interval).rounded(key)
    }

    /// As [`Self::of_poisson`], for a sampler that selects as many bytes as in a block of `drawn` bytes. jemalloc draws for the
    /// usable size of a block.
    #[must_use]
    pub fn of_drawn(size: Bytes, drawn: Bytes, interval: Bytes, key: u64) -> Self {
        Estimate::of_drawn(1, size, drawn, interval).rounded(key)
    }

    /// Returns the sample of a block of `size` bytes that stands for `weighted` bytes. A weight below the size counts as
    /// the size. `key`: [`rounding_key`](crate::rounding_key) of the block.
    #[must_use]
    pub fn of_weighted(size: Bytes, weighted: Bytes, key: u64) -> Self {
        Estimate::of_weighted(size, weighted).rounded(key)
    }

    /// Returns the sample of a block of `size` bytes that is kept with half of the probability: it stands for twice as much.
    ///
    /// A block with the value y (its bytes, or 1) that is sampled with the probability p has the weight w = y/p and the variance
    /// V = y²(1 - p)/p². With p/2 in place of p, the weight is 2w, and the variance is y²(1 - p/2)/(p/2)² = 4V + 2y²/p =
    /// 4V + 2wy. Both are linear in w and V, so they are right on average if w was rounded at random: the variance of the
    /// rounding is a part of V, and becomes four times as large, too.
    #[must_use]
    pub fn halved(&self, size: Bytes) -> Self {
        let Self { amount: Amount { bytes, count }, bytes_variance, count_variance } = *self;
        // The limits keep the amounts and variances that a target chooses from overflowing a sum.
        let variance = |before: u128, weight: u64, value: u64| {
            let more = (2 * u128::from(weight)).saturating_mul(u128::from(value));
            before.saturating_mul(4).saturating_add(more).min(u128::from(MOST_VARIANCE))
        };
        Self {
            amount: Amount {
                bytes: Bytes(bytes.0.saturating_mul(2).min(MOST_BYTES)),
                count: count.saturating_mul(2).min(MOST_BLOCKS),
            },
            bytes_variance: variance(bytes_variance, bytes.0, size.0),
            count_variance: variance(count_variance, count, 1),
        }
    }

    /// Returns the spread of this single sample.
    #[must_use]
    pub const fn spread(&self) -> Spread {
        Spread::new(1, self.bytes_variance, self.count_variance)
    }
}

impl SampleSum {
    /// Returns the sum of `samples` blocks of `size` bytes, sampled as for [`Sample::of_poisson`]. The same `key` always
    /// rounds in the same direction: with one key, more samples never have a smaller amount.
    #[must_use]
    pub fn of_poisson(samples: u64, size: Bytes, interval: Bytes, key: u64) -> Self {
        let Sample { amount, bytes_variance, count_variance } =
            Estimate::of_poisson(samples, size, interval).rounded(key);
        Self { amount, spread: Spread::new(samples, bytes_variance, count_variance) }
    }
}

impl AddAssign for SampleSum {
    fn add_assign(&mut self, other: Self) {
        self.amount += other.amount;
        self.spread += other.spread;
    }
}

impl SubAssign for SampleSum {
    fn sub_assign(&mut self, other: Self) {
        self.amount -= other.amount;
        self.spread -= other.spread;
    }
}

impl Sub for SampleSum {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl From<Sample> for SampleSum {
    /// Returns the sum of a single sample.
    fn from(sample: Sample) -> Self {
        Self { amount: sample.amount, spread: sample.spread() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::weight::rounding_key;
    use crate::{AbsAddr, Quantities, Tick, Variance};

    fn amount(bytes: u64, count: u64) -> Amount {
        Amount { bytes: Bytes(bytes), count }
    }

    /// Returns a number from 0 to below 1, which depends on `nth` only.
    fn random(nth: u64) -> f64 {
        (rounding_key(AbsAddr(nth), Tick(0)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[test]
    fn a_block_stands_for_the_inverse_of_its_probability() {
        // A block is sampled with the probability 1 - 1/e = 0.632121. So it stands for 158.1977 bytes and 1.58198 blocks. Their
        // variances are 158.1977² / e = 9206.7359 and 1.58198² / e = 0.92067. The roundings add 0.1977 * 0.8023 = 0.1586 and
        // 0.58198 * 0.41802 = 0.24328.
        const KEYS: u64 = 100_000;
        let mean = |number: fn(Sample) -> f64| {
            let numbers = (0..KEYS).map(|key| number(Sample::of_poisson(Bytes(100), Bytes(100), key)));
            numbers.sum::<f64>() / KEYS as f64
        };
        let means = [
            (mean(|sample| sample.amount.bytes.0 as f64), 158.1977),
            (mean(|sample| sample.amount.count as f64), 1.58198),
            (mean(|sample| sample.bytes_variance as f64), 9206.8945),
            (mean(|sample| sample.count_variance as f64), 1.16395),
        ];
        for (mean, expected) in means {
            // The standard deviation of each mean is at most 0.0016.
            assert!((mean - expected).abs() < 0.008, "{mean}, not {expected}");
        }
    }

    #[test]
    fn a_block_is_selected_by_its_drawn_size() {
        // The probability is 1 - 1/e, as above. So the block stands for 16 / 0.632121 = 25.3116 bytes and 1.58198 blocks.
        const KEYS: u64 = 100_000;
        let samples = || (0..KEYS).map(|key| Sample::of_drawn(Bytes(16), Bytes(17), Bytes(17), key).amount);
        let bytes = samples().map(|amount| amount.bytes.0).sum::<u64>() as f64 / KEYS as f64;
        let count = samples().map(|amount| amount.count).sum::<u64>() as f64 / KEYS as f64;
        assert!((bytes - 25.3116).abs() < 0.008 && (count - 1.58198).abs() < 0.008, "{bytes} bytes, {count} blocks");
        assert_eq!(Sample::of_drawn(Bytes(0), Bytes(1), Bytes(1), 7).amount, amount(0, 1));
    }

    #[test]
    fn whole_weights_are_not_rounded() {
        for key in 0..100 {
            // One block in eight is sampled: the variances are 512² * 7/8 and 8² * 7/8.
            let expected = Sample { amount: amount(512, 8), bytes_variance: 229_376, count_variance: 56 };
            assert_eq!(Sample::of_weighted(Bytes(64), Bytes(512), key), expected);
            let exact = |bytes| Sample { amount: amount(bytes, 1), bytes_variance: 0, count_variance: 0 };
            assert_eq!(Sample::of_weighted(Bytes(512), Bytes(512), key), exact(512));
            assert_eq!(Sample::of_weighted(Bytes(512), Bytes(64), key), exact(512));
            assert_eq!(Sample::of_weighted(Bytes(0), Bytes(512), key), exact(512));
            assert_eq!(Sample::of_poisson(Bytes(48), Bytes(1), key), exact(48));
            assert_eq!(Sample::of_poisson(Bytes(48), Bytes(0), key), exact(48));
            assert_eq!(Sample::of_poisson(Bytes(0), Bytes(512), key), exact(0));
        }
    }

    #[test]
    fn impossible_sizes_are_limited() {
        let most = Bytes(u64::MAX);
        let sample = Sample::of_weighted(Bytes(1), most, 1);
        assert_eq!(sample.amount, amount((1 << 56) - 1, 1 << 32));
        assert_eq!((sample.bytes_variance, sample.count_variance), (1 << 63, 1 << 63));
        let sum = SampleSum::of_poisson(u64::MAX, Bytes(1), most, 1);
        assert_eq!(sum.amount, amount((1 << 56) - 1, (1 << 56) - 1));
        assert_eq!(Sample::of_poisson(most, Bytes(2), 1).bytes_variance, 0);
        // The variance of a byte with an interval of 2^31 bytes is about 2^62.
        let variance = Sample::of_poisson(Bytes(1), Bytes(1 << 31), 1).bytes_variance;
        assert!(((1 << 62) - (1 << 32)..(1 << 62) + (1 << 32)).contains(&variance), "{variance}");
    }

    #[test]
    fn a_halved_sample_has_the_variance_of_half_the_probability() {
        // A block of 64 bytes is sampled with the probability 1/8, and stays with 1/2: one in sixteen is sampled. The variances
        // are 1024² * 15/16 and 16² * 15/16. With 1/32, they are 2048² * 31/32 and 32² * 31/32.
        let sample = Sample::of_weighted(Bytes(64), Bytes(512), 7);
        let halved = sample.halved(Bytes(64));
        assert_eq!(halved, Sample { amount: amount(1024, 16), bytes_variance: 983_040, count_variance: 240 });
        assert_eq!(halved, Sample::of_weighted(Bytes(64), Bytes(1024), 7));
        let twice = halved.halved(Bytes(64));
        assert_eq!(twice, Sample { amount: amount(2048, 32), bytes_variance: 4_063_232, count_variance: 992 });
        // An exact block that stays with 1/2 stands for two: the variances are 200² / 2 and 2² / 2.
        let exact = Sample { amount: amount(100, 1), bytes_variance: 0, count_variance: 0 };
        assert_eq!(
            exact.halved(Bytes(100)),
            Sample { amount: amount(200, 2), bytes_variance: 20_000, count_variance: 2 }
        );
    }

    #[test]
    fn impossible_samples_are_limited_when_they_are_halved() {
        let most = Sample { amount: amount(u64::MAX, u64::MAX), bytes_variance: u128::MAX, count_variance: u128::MAX };
        let limit = Sample { amount: amount((1 << 56) - 1, 1 << 32), bytes_variance: 1 << 63, count_variance: 1 << 63 };
        assert_eq!(most.halved(Bytes(u64::MAX)), limit);
        let one_in_two = Sample::of_weighted(Bytes(1), Bytes(2), 1);
        assert_eq!((0..255).fold(one_in_two, |sample, _| sample.halved(Bytes(1))), limit);
    }

    #[test]
    fn the_variance_of_many_impossible_samples_is_correct() {
        let spread = Sample::of_weighted(Bytes(1), Bytes(1 << 56), 1).spread();
        let mut sum = Quantities::ZERO.with_spreads(spread, spread);
        // Each step doubles the number of samples, up to 2^30.
        for _ in 0..30 {
            let same = sum;
            sum += same;
        }
        assert_eq!(sum.variance(Variance::AllocBytes), 1 << 93);
    }

    #[test]
    fn a_profile_is_scaled_as_by_the_runtime_of_go() {
        // `scaleHeapSample` of Go's runtime/pprof multiplies by 1 / (1 - e^(-1/512)) = 512.50016, and rounds down: 1,537 blocks,
        // 1,574,400 bytes.
        let interval = Bytes(512 << 10);
        for key in 0..100 {
            let SampleSum { amount: Amount { bytes, count }, spread } =
                SampleSum::of_poisson(3, Bytes(1024), interval, key);
            assert!((1537..=1538).contains(&count), "{count}");
            assert!((1_574_400..=1_574_401).contains(&bytes.0), "{bytes}");
            assert_eq!(spread.samples, 3);
            assert_eq!(SampleSum::of_poisson(0, Bytes(1024), interval, key), SampleSum::default());
        }
    }

    #[test]
    fn estimates_have_the_stated_variance() {
        const RUNS: u64 = 400;
        const BLOCKS: u64 = 1000;
        // Blocks of 1,000 to 5,000 bytes, each sampled with the probability of an interval of 8,192 bytes.
        let size = |block: u64| Bytes(1000 + block * 4);
        let interval = Bytes(8192);
        let total: u64 = (0..BLOCKS).map(|block| size(block).0).sum();
        let (mut errors, mut squares) = ([0.0; 2], [0.0; 2]);
        for run in 0..RUNS {
            let (mut sum, mut variances) = (Amount::default(), [0_u128; 2]);
            for block in 0..BLOCKS {
                let nth = run * BLOCKS + block;
                let probability = 1.0 - (-(size(block).0 as f64) / interval.0 as f64).exp();
                if random(nth) < probability {
                    let key = rounding_key(AbsAddr(nth << 4), Tick(7));
                    let sample = Sample::of_poisson(size(block), interval, key);
                    sum += sample.amount;
                    variances[0] += sample.bytes_variance;
                    variances[1] += sample.count_variance;
                }
            }
            let differences = [sum.bytes.0 as f64 - total as f64, sum.count as f64 - BLOCKS as f64];
            for (index, difference) in differences.into_iter().enumerate() {
                let deviation = (variances[index] as f64).sqrt();
                errors[index] += difference / deviation;
                squares[index] += difference * difference / variances[index] as f64;
            }
        }
        // In standard deviations, the mean error is 0 ± 0.05, and the mean square is 1 ± 0.07.
        for (error, square) in errors.into_iter().zip(squares) {
            let (mean, square) = (error / RUNS as f64, square / RUNS as f64);
            assert!(mean.abs() < 0.2 && (0.75..1.25).contains(&square), "{mean} {square}");
        }
    }

    #[test]
    fn thinned_estimates_have_the_stated_variance() {
        const SALTS: u64 = 100_000;
        // Sizes of blocks, each with the level of thinning when it was sampled. All are then thinned to level 2.
        const BLOCKS: [(u64, u8); 5] = [(100, 0), (300, 0), (500, 1), (700, 1), (900, 1)];
        const INTERVAL: u64 = 500;
        let probability = |size: u64| 1.0 - (-(size as f64) / INTERVAL as f64).exp();
        let (mut sums, mut squares, mut stated) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        for salt in 0..SALTS {
            let mut sum = [0; 2];
            for (nth, (size, level)) in (0..).zip(BLOCKS) {
                let number = salt * 5 + nth;
                let is_left_out = crate::is_thinned((nth + 1) << 10, rounding_key(AbsAddr(salt), Tick(1)), level, 2);
                if random(number) >= probability(size) || is_left_out {
                    continue;
                }
                let key = rounding_key(AbsAddr(number << 4), Tick(7));
                let sample = Sample::of_poisson(Bytes(size), Bytes(INTERVAL), key);
                let thinned = (level..2).fold(sample, |sample, _| sample.halved(Bytes(size)));
                sum[0] += thinned.amount.bytes.0;
                sum[1] += thinned.amount.count;
                stated[0] += thinned.bytes_variance as f64;
                stated[1] += thinned.count_variance as f64;
            }
            for (index, sum) in sum.into_iter().enumerate() {
                sums[index] += sum as f64;
                squares[index] += (sum * sum) as f64;
            }
        }
        let (mut expected, mut variances) = ([0.0; 2], [0.0; 2]);
        for (size, level) in BLOCKS {
            let (sampled, doubled) = (probability(size), f64::from(1_u32 << (2 - level)));
            for (index, value) in [size as f64, 1.0].into_iter().enumerate() {
                let fraction = (value / sampled).fract();
                // Thinning multiplies the rounding error with the weight. The error counts only if the block stays.
                let rounding = sampled * doubled * fraction * (1.0 - fraction);
                let stays = sampled / doubled;
                expected[index] += value;
                variances[index] += value * value * (1.0 - stays) / stays + rounding;
            }
        }
        for (index, true_variance) in variances.into_iter().enumerate() {
            let [mean, square, stated] = [sums[index], squares[index], stated[index]].map(|sum| sum / SALTS as f64);
            let error = (true_variance / SALTS as f64).sqrt();
            assert!((mean - expected[index]).abs() < 4.0 * error, "{mean}, not {} ± {error}", expected[index]);
            // The standard deviations of these ratios are about 0.01.
            let ratios = [stated, square - mean * mean].map(|variance| variance / true_variance);
            assert!(ratios.iter().all(|ratio| (0.96..1.04).contains(ratio)), "{ratios:?}");
        }
    }

    proptest! {
        #[test]
        fn differences_of_two_readings_are_never_negative(
            [one, more] in [0_u64..1 << 40, 0..1 << 20],
            size in 1_u64..1 << 20,
            key in any::<u64>(),
        ) {
            let at = |samples| SampleSum::of_poisson(samples, Bytes(size), Bytes(512 << 10), key);
            let change = at(one + more) - at(one);
            prop_assert!(change.amount.bytes.0.cast_signed() >= 0 && change.amount.count.cast_signed() >= 0);
            prop_assert_eq!(change.spread.samples, more);
            let mut sum = at(one);
            sum += change;
            prop_assert_eq!(sum, at(one + more));
        }

        #[test]
        fn a_sum_of_one_is_a_sample(size in 0_u64..1 << 50, interval in 0_u64..1 << 40, key in any::<u64>()) {
            let sample = Sample::of_poisson(Bytes(size), Bytes(interval), key);
            prop_assert_eq!(SampleSum::from(sample), SampleSum::of_poisson(1, Bytes(size), Bytes(interval), key));
        }
    }
}
