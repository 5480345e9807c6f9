//! Amounts of memory.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::Bytes;

/// Number of blocks or pages, and the sum of their sizes. Negative differences are stored as wrapped numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// Sum of the sizes in bytes.
    pub bytes: Bytes,
    /// Number of blocks or pages.
    pub count: u64,
}

impl Amount {
    /// Returns the amount of one block of `bytes`.
    #[must_use]
    pub const fn one(bytes: Bytes) -> Self {
        Self { bytes, count: 1 }
    }

    /// Returns the greater number of bytes, and the greater number of blocks.
    #[must_use]
    pub fn greater(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), count: self.count.max(other.count) }
    }

    /// Returns the lesser number of bytes, and the lesser number of blocks.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), count: self.count.min(other.count) }
    }

    /// Returns the amount with 0 in place of negative numbers, which differences can have.
    #[must_use]
    pub fn increase(self) -> Self {
        let increase = |number: u64| number.cast_signed().max(0).cast_unsigned();
        Self { bytes: Bytes(increase(self.bytes.0)), count: increase(self.count) }
    }

    /// Returns the difference of bytes, and the difference of blocks; 0 instead of a negative difference.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { bytes: Bytes(self.bytes.0.saturating_sub(other.bytes.0)), count: self.count.saturating_sub(other.count) }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_add(other.bytes.0);
        self.count = self.count.wrapping_add(other.count);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_sub(other.bytes.0);
        self.count = self.count.wrapping_sub(other.count);
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decreases_are_no_large_numbers() {
        let negative = |number: u64| 0_u64.wrapping_sub(number);
        let amount = Amount { bytes: Bytes(negative(7)), count: 3 };
        assert_eq!(amount.increase(), Amount { bytes: Bytes(0), count: 3 });
        assert_eq!(Amount { bytes: Bytes(5), count: negative(1) }.increase(), Amount { bytes: Bytes(5), count: 0 });
    }
}
