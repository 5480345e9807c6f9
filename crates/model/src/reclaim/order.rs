//! Orders of allocations: the binary logarithm of a number of contiguous pages.

use crate::{Bytes, PAGE, StallTotals};

/// Binary logarithm of a number of contiguous pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// Number of orders. `MAX_PAGE_ORDER` is 10, and 13 with pages of 64 KiB (include/linux/mmzone.h).
    const COUNT: usize = 16;

    /// Returns the order with the kernel's value `raw`; `None` if it is out of range.
    #[must_use]
    pub const fn of(raw: u32) -> Option<Self> {
        if raw < Self::COUNT as u32 { Some(Self(raw as u8)) } else { None }
    }

    /// Returns the exponent.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns the size of an allocation of this order.
    #[must_use]
    pub const fn size(self) -> Bytes {
        Bytes(PAGE.0 << self.0)
    }
}

/// Stalls by order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    known: [StallTotals; Order::COUNT],
    /// Stalls without a known order.
    others: StallTotals,
}

impl Orders {
    /// Adds stalls of one order.
    pub fn add(&mut self, order: Option<Order>, stalls: StallTotals) {
        *order.map_or(&mut self.others, |order| &mut self.known[usize::from(order.0)]) += stalls;
    }

    /// Iterates over the orders with stalls in ascending order. Stalls without an order come last.
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
    use crate::Nanoseconds;

    #[test]
    fn an_order_is_a_power_of_two_of_pages() {
        assert_eq!(Order::of(9).map(Order::size), Some(Bytes(2 << 20)));
        assert_eq!(Order::of(0).map(Order::size), Some(Bytes(4096)));
        // Compaction of a whole zone has order -1.
        assert_eq!((Order::of(u32::MAX), Order::of(16)), (None, None));
    }

    #[test]
    fn stalls_are_counted_by_order() {
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
