//! Rule by which stacks and processes are merged when there are too many: those of the smallest magnitude.

use std::cmp::Reverse;

use super::{EventClass, Quantities, Quantity};

/// The numbers of a stack, of a process, or of a sum of them, by which reports are sorted. Sums wrap while they are negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Magnitude([u64; Magnitude::COUNT]);

impl Magnitude {
    /// Number of numbers.
    pub const COUNT: usize = 4;

    /// Returns the quantities that the numbers stand for, one by one.
    #[must_use]
    pub const fn quantities(class: EventClass) -> &'static [Quantity] {
        match class.counts_stalls() {
            true => &[Quantity::StallTime, Quantity::StallCount],
            false => &[Quantity::LiveBytes, Quantity::ExitBytes, Quantity::AllocBytes, Quantity::AllocCount],
        }
    }

    /// Returns the magnitude with these numbers.
    #[must_use]
    pub const fn new(numbers: [u64; Self::COUNT]) -> Self {
        Self(numbers)
    }

    /// Returns the magnitude of `usage` in `class`.
    #[must_use]
    pub fn of(class: EventClass, usage: &Quantities) -> Self {
        let mut magnitude = Self::default();
        magnitude.0.iter_mut().zip(Self::quantities(class)).for_each(|(number, &quantity)| *number = usage[quantity]);
        magnitude
    }

    /// Adds another magnitude.
    pub fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(number, more)| *number = number.wrapping_add(more));
    }

    /// Returns the sum of the shares of the numbers in those of `all`, in units of 2^-48. A program that does not free its
    /// memory has bytes at exit in most stacks, and its largest sites in others, so no number can come first.
    #[must_use]
    pub fn share_of(self, all: Self) -> u64 {
        self.0.into_iter().zip(all.0).map(|(part, all)| share(part, all)).sum()
    }

    /// Returns the sum of `all`.
    #[must_use]
    pub fn sum_of(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, magnitude| {
            sum.add(magnitude);
            sum
        })
    }

    /// Returns the indices of `all`, the largest first; equal ones in their order.
    #[must_use]
    pub fn largest_first(all: &[Self]) -> Vec<usize> {
        let sum = Self::sum_of(all.iter().copied());
        let mut indices: Vec<_> = (0..all.len()).collect();
        indices.sort_by_cached_key(|&index| Reverse(all[index].share_of(sum)));
        indices
    }
}

/// Returns `part` of `all`, in units of 2^-48. A number that is still negative counts as if it were positive.
fn share(part: u64, all: u64) -> u64 {
    const ONE: u128 = 1 << 48;
    let [part, all] = [part, all].map(|number| number.cast_signed().unsigned_abs());
    let share = u128::from(part) * ONE / u128::from(all.max(1));
    // The quotient is at most ONE.
    share.min(ONE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_added_up() {
        let magnitude = |live, alloc| {
            let usage = Quantities::ZERO.with(Quantity::LiveBytes, live).with(Quantity::AllocBytes, alloc);
            Magnitude::of(EventClass::Heap, &usage)
        };
        let all = Magnitude::sum_of([magnitude(30, 600), magnitude(10, 200)]);
        assert_eq!(magnitude(10, 200).share_of(all), 1 << 47);
        assert_eq!(
            magnitude(10_u64.wrapping_neg(), 0).share_of(all),
            1 << 46,
            "a negative number has its absolute value"
        );
        assert_eq!(magnitude(7, u64::MAX).share_of(Magnitude::default()), 2 << 48);
        let stalls = Quantities::ZERO.with(Quantity::StallTime, 5).with(Quantity::LiveBytes, 9);
        let stalls = Magnitude::of(EventClass::Reclaim, &stalls);
        assert_eq!(stalls.share_of(stalls), 1 << 48);
        let shares = [magnitude(0, 100), magnitude(5, 0), magnitude(5, 0), magnitude(1, 80)];
        assert_eq!(Magnitude::largest_first(&shares), [0, 3, 1, 2]);
    }
}
