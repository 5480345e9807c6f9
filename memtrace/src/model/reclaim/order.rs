//! How many pages side by side were wanted.

use crate::model::{Bytes, PAGE, StallTotals};

/// A number of pages side by side, as a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// Orders are below it: `MAX_PAGE_ORDER` is 10, and 13 where pages are of 64 KiB (include/linux/mmzone.h).
    const COUNT: usize = 16;

    /// The order that the kernel calls `raw`; `None` where it is none.
    #[must_use]
    pub const fn of(raw: u32) -> Option<Self> {
        if raw < Self::COUNT as u32 { Some(Self(raw as u8)) } else { None }
    }

    /// The order as a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// How much so many pages are.
    #[must_use]
    pub const fn size(self) -> Bytes {
        Bytes(PAGE.0 << self.0)
    }
}

/// Waits by how many pages side by side were wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    known: [StallTotals; Order::COUNT],
    /// Those for which there is no such number, or the kernel does not tell it.
    others: StallTotals,
}

impl Orders {
    /// Adds waits of one order.
    pub fn add(&mut self, order: Option<Order>, stalls: StallTotals) {
        *order.map_or(&mut self.others, |order| &mut self.known[usize::from(order.0)]) += stalls;
    }

    /// Those that there are some of, by order; last those without one.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Order>, StallTotals)> + '_ {
        let known = (0..).map(Order::of).zip(self.known);
        known.chain([(None, self.others)]).filter(|(_, stalls)| stalls.count > 0)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.known.iter_mut().zip(other.known).for_each(|(ours, theirs)| *ours += theirs);
        self.others += other.others;
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.known.iter_mut().zip(other.known).for_each(|(ours, theirs)| *ours -= theirs);
        self.others -= other.others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Nanoseconds;

    #[test]
    fn an_order_is_a_power_of_two_of_pages() {
        assert_eq!(Order::of(9).map(Order::size), Some(Bytes(2 << 20)));
        assert_eq!(Order::of(0).map(Order::size), Some(Bytes(4096)));
        // Compacting everything is of order -1.
        assert_eq!((Order::of(u32::MAX), Order::of(16)), (None, None));
    }

    #[test]
    fn waits_are_kept_apart_by_their_order() {
        let stalls = |count, time| StallTotals { count, time: Nanoseconds(time) };
        let mut orders = Orders::default();
        orders.add(Order::of(9), stalls(1, 70));
        orders.add(None, stalls(1, 5));
        let then = orders;
        orders.add(Order::of(9), stalls(1, 30));
        orders.add(Order::of(0), stalls(2, 10));
        let shown: Vec<_> = orders.iter().collect();
        assert_eq!(shown, [(Order::of(0), stalls(2, 10)), (Order::of(9), stalls(2, 100)), (None, stalls(1, 5))]);
        let mut since = orders;
        since.subtract(&then);
        assert_eq!(since.iter().collect::<Vec<_>>(), [(Order::of(0), stalls(2, 10)), (Order::of(9), stalls(1, 30))]);
        since.merge(&then);
        assert_eq!(since, orders);
    }
}
