//! Size of a stack. If there are too many stacks, the smallest ones are merged.

use std::collections::BTreeMap;

use super::{EventClass, Quantities, Quantity};

/// Quantities that determine the size of a stack, or of a sum of stacks. Negative values are stored as wrapped numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Magnitude([u64; Magnitude::COUNT]);

impl Magnitude {
    pub const COUNT: usize = 4;

    /// Returns the quantities of a class, in the order of the values in a [`Magnitude`]. A class may have fewer than
    /// [`Self::COUNT`] quantities.
    pub const fn quantities(class: EventClass) -> &'static [Quantity] {
        match class.counts_stalls() {
            true => &[Quantity::StallTime, Quantity::StallCount],
            false => &[Quantity::LiveBytes, Quantity::ExitBytes, Quantity::AllocBytes, Quantity::AllocCount],
        }
    }

    pub const fn new(numbers: [u64; Self::COUNT]) -> Self {
        Self(numbers)
    }

    pub fn of(class: EventClass, usage: &Quantities) -> Self {
        let mut magnitude = Self::default();
        magnitude.0.iter_mut().zip(Self::quantities(class)).for_each(|(number, &quantity)| *number = usage[quantity]);
        magnitude
    }

    /// Returns the magnitude with absolute values, because changes of both signs can add up to 0.
    pub fn absolute(self) -> Self {
        Self(self.0.map(|number| number.cast_signed().unsigned_abs()))
    }

    pub fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(number, more)| *number = number.wrapping_add(more));
    }
}

/// Sums of magnitudes by event class. The size of a magnitude is relative to the sum of its class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Magnitudes(BTreeMap<EventClass, Magnitude>);

impl Magnitudes {
    pub fn add(&mut self, class: EventClass, magnitude: Magnitude) {
        self.0.entry(class).or_default().add(magnitude);
    }

    /// Returns the size of a magnitude: each quantity is divided by its sum over the event class, and these shares are added.
    /// No quantity takes precedence, because the stacks with the most bytes held at exit need not be the stacks with the most
    /// allocated bytes.
    pub fn size(&self, class: EventClass, magnitude: Magnitude) -> u64 {
        let all = self.0.get(&class).copied().unwrap_or_default();
        magnitude.0.into_iter().zip(all.0).map(|(part, all)| share(part, all)).sum()
    }
}

/// Returns the share of `part` in `all`, in units of 2^-48, and at most 1. Negative numbers count with their absolute
/// value.
pub fn share(part: u64, all: u64) -> u64 {
    const ONE: u128 = 1 << 48;
    let [part, all] = [part, all].map(|number| number.cast_signed().unsigned_abs());
    let share = u128::from(part) * ONE / u128::from(all.max(1));
    share.min(ONE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_the_sum_of_shares_in_the_own_class() {
        let magnitude = |live, alloc| {
            let usage = Quantities::ZERO.with(Quantity::LiveBytes, live).with(Quantity::AllocBytes, alloc);
            Magnitude::of(EventClass::Heap, &usage)
        };
        let stalls = Quantities::ZERO.with(Quantity::StallTime, 5).with(Quantity::LiveBytes, 9);
        let stalls = Magnitude::of(EventClass::Reclaim, &stalls);
        let mut all = Magnitudes::default();
        all.add(EventClass::Heap, magnitude(30, 600));
        all.add(EventClass::Reclaim, stalls);
        all.add(EventClass::Heap, magnitude(10, 200));
        let size = |magnitude| all.size(EventClass::Heap, magnitude);
        assert_eq!(size(magnitude(10, 200)), 1 << 47);
        let negative = magnitude(10_u64.wrapping_neg(), 0);
        assert_eq!((size(negative), negative.absolute()), (1 << 46, magnitude(10, 0)));
        assert_eq!(size(magnitude(7, u64::MAX >> 1)), (7 << 48) / 40 + (1 << 48), "a share is at most 1");
        assert_eq!(all.size(EventClass::Reclaim, stalls), 1 << 48);
    }
}
