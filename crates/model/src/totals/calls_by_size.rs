//! Numbers of allocation calls by size.

use std::ops::{Add, Sub};

use crate::Bytes;

/// Number of size classes.
const CLASSES: usize = u64::BITS as usize;

/// Numbers of allocation calls by size class. Class n has the sizes from 2^n to 2^(n+1) - 1. Class 0 has size 0 too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallsBySize([u64; CLASSES]);

impl Default for CallsBySize {
    fn default() -> Self {
        Self([0; CLASSES])
    }
}

impl CallsBySize {
    /// Returns the class of `size`.
    const fn class(size: Bytes) -> usize {
        (u64::BITS - 1 - (size.0 | 1).leading_zeros()) as usize
    }

    /// Adds `count` calls for `size` bytes.
    pub fn count(&mut self, size: Bytes, count: u64) {
        if let Some(calls) = self.0.get_mut(Self::class(size)) {
            *calls = calls.saturating_add(count);
        }
    }

    /// Returns the number of calls of any size.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of calls in the classes that have only sizes of `size` or more.
    #[must_use]
    pub fn of_at_least(&self, size: Bytes) -> u64 {
        let first = if size.0 <= 1 {
            0
        } else {
            size.0.checked_next_power_of_two().map_or(CLASSES, |power| power.trailing_zeros() as usize)
        };
        self.0.iter().skip(first).sum()
    }
}

impl FromIterator<(Bytes, u64)> for CallsBySize {
    fn from_iter<T: IntoIterator<Item = (Bytes, u64)>>(counts: T) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|(size, count)| all.count(size, count));
        all
    }
}

impl Add for CallsBySize {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(calls, more)| *calls = calls.saturating_add(more));
        self
    }
}

impl Sub for CallsBySize {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        self.0.iter_mut().zip(earlier.0).for_each(|(calls, before)| *calls = calls.saturating_sub(before));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_counts_only_if_all_its_sizes_are_large_enough() {
        let one_in_each: CallsBySize = (0..u64::BITS).map(|power| (Bytes(1 << power), 1)).collect();
        for (size, classes) in [(0, 64), (1, 64), (2, 63), (4096, 52), (4097, 51), (u64::MAX, 0)] {
            assert_eq!(one_in_each.of_at_least(Bytes(size)), classes, "{size}");
        }
    }

    #[test]
    fn class_is_the_binary_logarithm_of_the_size() {
        for (size, class) in [(0, 0), (1, 0), (2, 1), (3, 1), (4095, 11), (4096, 12), (u64::MAX, 63)] {
            assert_eq!(CallsBySize::class(Bytes(size)), class, "{size}");
        }
    }
}
