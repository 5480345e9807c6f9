//! Stalls of one image.

use std::collections::BTreeMap;

use memtrace_model::{ImageEnd, ImageUsage, Part, Quantities, StackKey, Stall, StallKey, StallStats, StallTotals};
use rustc_hash::FxHashMap;

use super::budget::{Budget, is_limited, merged_key};

/// Stalls of one image.
#[derive(Debug, Default)]
pub(super) struct ImageStalls {
    totals: Totals,
    /// Changes of the totals since the last delta; empty without deltas.
    changes: Totals,
}

/// Totals of stalls by stack and by kind.
#[derive(Debug, Default)]
struct Totals {
    by_stack: FxHashMap<StackKey, StallTotals>,
    by_key: BTreeMap<StallKey, StallStats>,
    /// Number of times that a stack was merged.
    merged: u64,
}

impl Totals {
    fn add(&mut self, key: StackKey, stall: &Stall) {
        *self.by_stack.entry(key).or_default() += StallTotals { count: 1, time: stall.duration };
        let Stall { group, work, .. } = *stall;
        self.by_key.entry(StallKey { group, work }).or_default().add(stall);
    }

    fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let (stalls, merged_stacks) = (self.by_key.clone(), self.merged);
        let mut usage = ImageUsage { ended, stalls, merged_stacks, ..ImageUsage::default() };
        for (&key, &stalls) in self.by_stack.iter().filter(|(_, stalls)| **stalls != StallTotals::default()) {
            let stack_usage = Quantities::ZERO.with_stalls(stalls);
            usage.total += stack_usage;
            usage.by_stack.insert(key, stack_usage);
        }
        usage
    }
}

impl ImageStalls {
    /// Adds a stall of a part of the process.
    pub(super) fn add(&mut self, stall: &Stall, part: Part, budget: &mut Budget) {
        let key = StackKey { stack: stall.stack, part };
        let key = if self.totals.by_stack.contains_key(&key) { key } else { budget.admit(key) };
        self.totals.add(key, stall);
        if budget.tracks_changes {
            self.changes.add(key, stall);
        }
    }

    /// Returns the number of stacks that count towards the limit.
    pub(super) fn limited(&self) -> u32 {
        // The maximum number of stacks is a u32.
        self.totals.by_stack.keys().filter(|key| is_limited(**key)).count() as u32
    }

    /// Iterates over the stacks that count towards the limit, with their totals. All of them can be merged.
    pub(super) fn idle(&self) -> impl Iterator<Item = (StackKey, Quantities)> {
        let limited = self.totals.by_stack.iter().filter(|(key, _)| is_limited(**key));
        limited.map(|(&key, &stalls)| (key, Quantities::ZERO.with_stalls(stalls)))
    }

    /// Merges a stack into the sum of merged stacks. Returns false if the stack is unknown.
    pub(super) fn merge_stack(&mut self, key: StackKey, budget: &Budget) -> bool {
        let Some(stalls) = self.totals.by_stack.remove(&key) else { return false };
        *self.totals.by_stack.entry(merged_key(key)).or_default() += stalls;
        self.totals.merged += 1;
        if budget.tracks_changes {
            *self.changes.by_stack.entry(key).or_default() -= stalls;
            *self.changes.by_stack.entry(merged_key(key)).or_default() += stalls;
            self.changes.merged += 1;
        }
        true
    }

    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        self.totals.usage(ended)
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        std::mem::take(&mut self.changes).usage(None)
    }
}
