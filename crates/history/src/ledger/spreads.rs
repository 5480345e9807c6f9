//! Spreads of the estimates of an image, by stack. Only stacks with samples have an entry.

use memtrace_model::{Quantities, Spread};
use rustc_hash::FxHashMap;

/// Spreads of the estimates of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StackSpreads {
    /// Spread of the live blocks.
    pub(super) live: Spread,
    /// Spread of the allocated blocks.
    pub(super) alloc: Spread,
}

/// Spreads by the index of the stack.
pub(super) type Spreads = FxHashMap<u32, StackSpreads>;

/// Returns the sum of the spreads of all stacks.
pub(super) fn sum(all: &Spreads) -> StackSpreads {
    all.values().fold(StackSpreads::default(), |mut sum, spreads| {
        sum.add(*spreads);
        sum
    })
}

impl StackSpreads {
    pub(super) fn add(&mut self, other: Self) {
        self.live += other.live;
        self.alloc += other.alloc;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.live -= other.live;
        self.alloc -= other.alloc;
    }

    /// Returns quantities with these spreads.
    pub(super) const fn in_quantities(&self, quantities: Quantities) -> Quantities {
        quantities.with_spreads(self.live, self.alloc)
    }
}
