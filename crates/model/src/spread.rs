//! Spread of an estimate: the number of its samples, and its variances.
//!
//! A variance can exceed 64 bits, and a quantity of a stack has 64 bits. So a variance is kept as two sums, which add up
//! separately: sums and differences are correct in any order, even if they are negative for a while.

use std::ops::{AddAssign, SubAssign};

/// Number of samples in an estimate, and the variances of the estimate. Negative differences are stored as wrapped
/// numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    pub(crate) samples: u64,
    pub(crate) bytes_variance: WideSum,
    pub(crate) count_variance: WideSum,
}

/// Number of low bits of each number in [`WideSum::low`].
const LOW_BITS: u32 = 32;

/// Number of bits of each number. A number with more bits counts as a smaller number with this many bits.
const BITS: u32 = 72;

/// Sum of wide numbers, as two wrapping sums. The sum is correct for at most 2^31 numbers up to 2^63, the largest variance
/// of a sample, and for at most 2^22 numbers of [`BITS`] bits, such as variances of the stacks of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WideSum {
    /// Sum of the low bits of each number.
    pub(crate) low: u64,
    /// Sum of the high bits of each number: the bits above the low ones.
    pub(crate) high: u64,
}

impl WideSum {
    /// Returns the sum of one number.
    pub(crate) const fn of(number: u128) -> Self {
        const MOST: u128 = (1 << (BITS - LOW_BITS)) - 1;
        let high = number >> LOW_BITS;
        let high = if high < MOST { high } else { MOST };
        Self { low: number as u64 & ((1 << LOW_BITS) - 1), high: high as u64 }
    }

    /// Returns the sum; 0 if it is negative.
    pub(crate) const fn value(self) -> u128 {
        let sum = ((self.high.cast_signed() as i128) << LOW_BITS) + self.low.cast_signed() as i128;
        if sum < 0 { 0 } else { sum.unsigned_abs() }
    }
}

impl AddAssign for WideSum {
    fn add_assign(&mut self, other: Self) {
        self.low = self.low.wrapping_add(other.low);
        self.high = self.high.wrapping_add(other.high);
    }
}

impl SubAssign for WideSum {
    fn sub_assign(&mut self, other: Self) {
        self.low = self.low.wrapping_sub(other.low);
        self.high = self.high.wrapping_sub(other.high);
    }
}

impl Spread {
    /// Returns the spread of a number of samples with these variances of their sum, in bytes squared and in blocks
    /// squared.
    pub(crate) const fn new(samples: u64, bytes_variance: u128, count_variance: u128) -> Self {
        let (bytes_variance, count_variance) = (WideSum::of(bytes_variance), WideSum::of(count_variance));
        Self { samples, bytes_variance, count_variance }
    }
}

impl AddAssign for Spread {
    fn add_assign(&mut self, other: Self) {
        self.samples = self.samples.wrapping_add(other.samples);
        self.bytes_variance += other.bytes_variance;
        self.count_variance += other.count_variance;
    }
}

impl SubAssign for Spread {
    fn sub_assign(&mut self, other: Self) {
        self.samples = self.samples.wrapping_sub(other.samples);
        self.bytes_variance -= other.bytes_variance;
        self.count_variance -= other.count_variance;
    }
}
