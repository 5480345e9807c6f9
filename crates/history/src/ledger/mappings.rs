//! Mappings of one image.
//!
//! A mapping may be unmapped in parts, split and moved. Each part stays attributed to the stack that mapped it. The
//! growth of a mapping is attributed to the stack of the `mremap` that grew it.

use std::collections::BTreeMap;

use memtrace_model::{
    AbsAddr, Amount, Bytes, ImageEnd, ImageUsage, LossReason, PAGE, Quantities, StackKey, Tid, Touched,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::Budget;
use super::stack_totals::ImageTotals;

/// Maximum number of tentative unmaps. The exit of a thread does not remove its entry.
const MAX_TENTATIVE: usize = 1 << 15;

/// Mapped ranges and their totals.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    /// Mapped ranges by first address. They do not overlap.
    ranges: BTreeMap<u64, MappedRange>,
    /// Ranges of the latest unmap or move of each thread.
    tentative: FxHashMap<Tid, TentativeUnmap>,
    totals: ImageTotals,
    /// Number of unmaps of ranges that were mapped before tracing began.
    unmatched: u64,
    /// Value of `unmatched` at the last delta.
    unmatched_before: u64,
}

/// Address range that one stack has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MappedRange {
    /// End address, exclusive.
    end: u64,
    /// Index of the stack in the totals.
    stack: u32,
}

/// Ranges of the latest unmap or move of a thread.
#[derive(Clone, Debug, Default)]
struct TentativeUnmap {
    begin: u64,
    ranges: Vec<(u64, MappedRange)>,
}

impl Mappings {
    /// Adds a mapping, which replaces earlier mappings at its addresses.
    pub(super) fn map(&mut self, begin: AbsAddr, size: Bytes, key: StackKey, budget: &mut Budget) {
        self.remove(begin.0, begin.0 + size.0, budget);
        self.insert(begin.0, begin.0 + size.0, key, budget);
    }

    /// Removes a range that is about to be unmapped or moved.
    pub(super) fn unmap_tentatively(&mut self, tid: Tid, begin: AbsAddr, size: Bytes, budget: &mut Budget) {
        let ranges = self.remove(begin.0, begin.0 + size.0, budget);
        let known: u64 = ranges.iter().map(|(begin, range)| range.end - begin).sum();
        self.unmatched += u64::from(known < size.0);
        if self.tentative.len() >= MAX_TENTATIVE {
            self.tentative.clear();
        }
        self.tentative.insert(tid, TentativeUnmap { begin: begin.0, ranges });
    }

    /// Restores the range of a failed unmap or move.
    pub(super) fn undo_unmap(&mut self, tid: Tid, budget: &mut Budget) {
        for (begin, range) in self.tentative.remove(&tid).unwrap_or_default().ranges {
            self.restore(begin, range, budget);
        }
    }

    /// Moves and resizes a mapping (`mremap`). `keeps`: the old range stays mapped (`MREMAP_DONTUNMAP`).
    pub(super) fn move_range(
        &mut self,
        tid: Tid,
        [old, old_size]: [u64; 2],
        [begin, size]: [u64; 2],
        keeps: bool,
        key: StackKey,
        budget: &mut Budget,
    ) {
        // If the record of this unmap was lost, the entry belongs to an earlier call.
        let ranges = self.tentative.remove(&tid).filter(|unmap| unmap.begin == old).unwrap_or_default().ranges;
        if keeps {
            for &(begin, range) in &ranges {
                self.restore(begin, range, budget);
            }
        }
        // The new range must be empty. Restored ranges can overlap it if a record is damaged.
        self.remove(begin, begin + size, budget);
        for (start, range) in ranges {
            // A damaged record can state a smaller size than the unmapped ranges have.
            let moved = |address: u64| begin + (address - old).min(old_size).min(size);
            let (start, end) = (moved(start), moved(range.end));
            match keeps {
                true => self.insert(start, end, key, budget),
                false if start < end => self.restore(start, MappedRange { end, ..range }, budget),
                false => {}
            }
        }
        if size > old_size {
            self.insert(begin + old_size, begin + size, key, budget);
        }
    }

    /// Returns the mappings of a forked child. If the budget is exceeded, counts a loss and returns `None`.
    pub(super) fn fork(&self, budget: &mut Budget) -> Option<Box<Self>> {
        let count = self.ranges.len() as u64;
        if budget.mapped_ranges + count > budget.max_blocks {
            budget.losses.add(LossReason::LedgerFull, count);
            return None;
        }
        let totals = self.totals.fork(budget)?;
        budget.mapped_ranges += count;
        Some(Box::new(Self { ranges: self.ranges.clone(), totals, ..Self::default() }))
    }

    pub(super) const fn totals(&self) -> &ImageTotals {
        &self.totals
    }

    /// Iterates over the stacks without mappings and tentative unmaps, with their totals.
    pub(super) fn idle(&self) -> impl Iterator<Item = (StackKey, Quantities)> {
        let ranges = self.tentative.values().flat_map(|unmap| &unmap.ranges);
        let pinned: FxHashSet<u32> = ranges.map(|(_, range)| range.stack).collect();
        self.totals.idle(move |index| pinned.contains(&index))
    }

    /// Merges a stack without mappings into the sum of merged stacks.
    pub(super) fn merge_stack(&mut self, key: StackKey) -> bool {
        self.totals.merge_stack(key).is_some()
    }

    pub(super) fn count(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// Returns the totals at the end of the image, or while it runs. At its end, an image has no mappings.
    pub(super) fn totals_at(&self, ended: Option<ImageEnd>) -> ImageUsage {
        ImageUsage { unmatched_frees: self.unmatched, ..self.totals.memory_usage(ended) }
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        let before = std::mem::replace(&mut self.unmatched_before, self.unmatched);
        ImageUsage { unmatched_frees: self.unmatched - before, ..self.totals.take_changes() }
    }

    /// Returns the usage at the end of the image, or while it runs. The usage of a running image has the mapped
    /// ranges.
    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = self.totals_at(ended);
        if ended.is_none() {
            let touched = |(&begin, range): (&u64, &MappedRange)| Touched {
                begin: AbsAddr(begin),
                pages: pages(begin, range.end).count,
                key: self.totals.key(range.stack),
                huge: false,
            };
            usage.touched = self.ranges.iter().map(touched).collect();
        }
        usage
    }

    fn insert(&mut self, begin: u64, end: u64, key: StackKey, budget: &mut Budget) {
        if begin >= end {
            return;
        }
        if budget.mapped_ranges >= budget.max_blocks {
            budget.losses.add(LossReason::LedgerFull, 1);
            return;
        }
        budget.mapped_ranges += 1;
        let stack = self.totals.index_or_insert(key, budget);
        self.totals.alloc(stack, pages(begin, end));
        self.ranges.insert(begin, MappedRange { end, stack });
    }

    /// Adds a removed range again, unless its addresses are in use.
    fn restore(&mut self, begin: u64, range: MappedRange, budget: &mut Budget) {
        // Another thread may have mapped these addresses.
        if self.ranges.range(..range.end).next_back().is_some_and(|(_, other)| other.end > begin) {
            return;
        }
        budget.mapped_ranges += 1;
        self.totals.undo_free(range.stack, pages(begin, range.end));
        self.ranges.insert(begin, range);
    }

    /// Removes the mapped ranges within these addresses, and returns them in order.
    fn remove(&mut self, begin: u64, end: u64, budget: &mut Budget) -> Vec<(u64, MappedRange)> {
        let mut removed = Vec::new();
        // The last range before `begin` may overlap.
        let first =
            self.ranges.range(..begin).next_back().filter(|(_, range)| range.end > begin).map(|(&first, _)| first);
        let keys: Vec<u64> = first.into_iter().chain(self.ranges.range(begin..end).map(|(&first, _)| first)).collect();
        for first in keys {
            let Some(range) = self.ranges.remove(&first) else { continue };
            budget.mapped_ranges -= 1;
            let cut = (first.max(begin), MappedRange { end: range.end.min(end), ..range });
            let remaining = [(first, cut.0), (cut.1.end, range.end)];
            self.totals.free(range.stack, pages(cut.0, cut.1.end));
            for (begin, end) in remaining.into_iter().filter(|(begin, end)| begin < end) {
                budget.mapped_ranges += 1;
                self.ranges.insert(begin, MappedRange { end, ..range });
            }
            removed.push(cut);
        }
        removed
    }
}

/// Returns the size of an address range in bytes and pages.
const fn pages(begin: u64, end: u64) -> Amount {
    Amount { bytes: Bytes(end - begin), count: (end - begin) / PAGE.0 }
}

#[cfg(test)]
mod tests;
