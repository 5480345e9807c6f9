//! Order in which stacks of groups are merged.

use crate::model::{EventClass, Usage};
use crate::symbolize::stack_totals::PathUsage;

/// Weights of the stacks of one event class. Those with the smallest weights are merged first.
pub(super) struct Weights {
    class: EventClass,
    /// Sum over all groups.
    total: Usage,
}

impl Weights {
    /// Returns the weights of stacks with the sum `total`.
    pub(super) const fn new(class: EventClass, total: Usage) -> Self {
        Self { class, total }
    }

    /// Returns the weight of a stack: the sum of its shares in the numbers by which reports are sorted. A program that does
    /// not free its memory has bytes at exit in most stacks, and its largest sites in others, so neither number can come
    /// first.
    pub(super) fn of(&self, totals: &PathUsage) -> u64 {
        let (usage, total) = (&totals.usage.usage, &self.total);
        if self.class.counts_stalls() {
            return share(usage.stalls.time.0, total.stalls.time.0) + share(usage.stalls.count, total.stalls.count);
        }
        share(usage.exit.bytes.0, total.exit.bytes.0)
            + share(usage.alloc.bytes.0, total.alloc.bytes.0)
            + share(usage.alloc.count, total.alloc.count)
    }
}

/// Returns `part` of `all`, in units of 2^-48.
fn share(part: u64, all: u64) -> u64 {
    const ONE: u128 = 1 << 48;
    let share = u128::from(part) * ONE / u128::from(all.max(1));
    // The quotient is at most ONE.
    share.min(ONE) as u64
}
