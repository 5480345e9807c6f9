//! Estimates in the totals of stacks: samples, and profiles that a target keeps.

use std::collections::hash_map::Entry;

use memtrace_model::{Quantities, SampleSum, Spread};

use super::ImageTotals;
use crate::ledger::budget::{Budget, SPREADS, is_limited};
use crate::ledger::spreads::{self, StackSpreads};

impl ImageTotals {
    /// Adds the spread of an allocated block. The amounts must change first, as for [`Self::count`].
    pub(in crate::ledger) fn add_spread(&mut self, index: u32, spread: Spread, budget: &mut Budget) {
        self.spreads_at(index, budget).add(StackSpreads { live: spread, alloc: spread });
    }

    /// Returns the spreads of a stack. New spreads count towards the limit of stacks.
    fn spreads_at(&mut self, index: u32, budget: &mut Budget) -> &mut StackSpreads {
        let key = self.key(index);
        match self.spreads.entry(index) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                if is_limited(key) {
                    self.limited += SPREADS;
                    budget.totals.add(SPREADS);
                }
                entry.insert(StackSpreads::default())
            }
        }
    }

    /// Adds the spread of a block that is live again. The amounts must change first.
    pub(in crate::ledger) fn add_live_spread(&mut self, index: u32, spread: Spread) {
        self.spreads.entry(index).or_default().live += spread;
    }

    /// Subtracts the spread of a block that was freed. The amounts must change first.
    pub(in crate::ledger) fn subtract_live_spread(&mut self, index: u32, spread: Spread) {
        self.spreads.entry(index).or_default().live -= spread;
    }

    /// Adds the spread of blocks that are not followed. The amounts must change first.
    pub(in crate::ledger) fn add_dropped_spread(&mut self, index: u32, spread: Spread, budget: &mut Budget) {
        self.spreads_at(index, budget).alloc += spread;
    }

    /// Adds samples to the live and the allocated amount: allocations that a profile of the target counts, or a correction, which
    /// can be negative. The high-water mark does not change before [`Self::end_changes`].
    pub(in crate::ledger) fn add_samples(&mut self, index: u32, samples: SampleSum, budget: &mut Budget) {
        self.change(index, |totals| {
            totals.live += samples.amount;
            totals.alloc += samples.amount;
        });
        self.live += samples.amount;
        self.add_spread(index, samples.spread, budget);
    }

    /// Subtracts frees that a profile of the target counts.
    pub(in crate::ledger) fn subtract_profiled(&mut self, index: u32, free: SampleSum) {
        self.change(index, |totals| totals.live -= free.amount);
        self.live -= free.amount;
        self.subtract_live_spread(index, free.spread);
    }

    /// Updates the high-water mark after changes that happen at once: a reading of a profile of the target, or corrections.
    pub(in crate::ledger) fn end_changes(&mut self) {
        self.update_peak();
    }

    /// Returns the spreads of a stack.
    pub(in crate::ledger) fn spreads(&self, index: u32) -> StackSpreads {
        self.spreads.get(&index).copied().unwrap_or_default()
    }

    /// Returns the sum of the quantities that all stacks have while the image runs.
    pub(in crate::ledger) fn sum(&self) -> Quantities {
        let amounts: Quantities = self.iter().map(|(_, totals)| totals.quantities()).sum();
        spreads::sum(&self.spreads).in_quantities(amounts)
    }
}
