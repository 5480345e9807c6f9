//! Changes of one image since the last delta.

use super::{Image, change_epoch};
use crate::ledger::budget::{Budget, Settings};
use crate::model::{Amount, EventClass, ImageUsage, Quantity, Tick};

impl Image {
    /// Leaves the stacks of the new image out of deltas, which have the sum of its blocks.
    pub(in crate::ledger) fn defer_stacks(&mut self) {
        self.totals.defer_stacks();
        self.has_unsent_frames = true;
    }

    /// Returns true if the stacks are left out of deltas.
    pub(in crate::ledger) const fn defers_stacks(&self) -> bool {
        self.totals.defers_stacks()
    }

    /// Adds the stacks to the next delta, if they were left out so far.
    pub(in crate::ledger) fn send_stacks(&mut self) {
        self.totals.send_stacks();
    }

    /// Returns true once, after [`Self::send_stacks`], if the next delta needs the frames of all stacks.
    pub(in crate::ledger) const fn takes_frames(&mut self) -> bool {
        let takes = self.has_unsent_frames && !self.defers_stacks();
        self.has_unsent_frames &= !takes;
        takes
    }

    /// Removes and returns the changes since the last delta, without classes that have none.
    pub(in crate::ledger) fn take_changes(&mut self) -> Vec<(EventClass, ImageUsage)> {
        self.is_in_delta = true;
        let changes = EventClass::ALL.iter().map(|&class| (class, self.take_changes_of(class)));
        changes.filter(|(_, change)| *change != ImageUsage::default()).collect()
    }

    /// Removes and returns the changes of one class that lead to `usage`, which replaces the totals of the class. The
    /// high-water mark is among these last changes only.
    pub(in crate::ledger) fn take_last_changes(&mut self, class: EventClass, usage: &ImageUsage) -> ImageUsage {
        if class == EventClass::Heap && self.defers_stacks() {
            return self.take_last_sum(usage);
        }
        if self.is_in_delta {
            let mut change = usage.diff(&self.totals_of(class));
            change.merge(self.take_changes_of(class));
            change.peak = usage.peak;
            for (key, stack) in usage.by_stack.iter().filter(|(_, stack)| stack[Quantity::AtPeakBytes] != 0) {
                change.by_stack.entry(*key).or_default()[Quantity::AtPeakBytes] = stack[Quantity::AtPeakBytes];
            }
            change.remove_zeros();
            return change;
        }
        usage.clone()
    }

    /// Records that all blocks end with their image. Without an earlier delta, the next one has no live amounts of it.
    pub(in crate::ledger) fn end_blocks(&mut self, budget: &mut Budget) {
        // All stacks are sent before a mark, so blocks of deferred stacks are from the current epoch.
        if self.is_in_delta && !self.defers_stacks() {
            for block in self.blocks.iter() {
                change_epoch(&mut self.totals, block, Amount::default() - Amount::one(block.size), budget);
            }
        }
    }

    fn take_changes_of(&mut self, class: EventClass) -> ImageUsage {
        let changes = match class {
            EventClass::Heap => return self.take_heap_changes(),
            EventClass::Fault => self.pages.as_mut().map(|pages| pages.take_changes()),
            EventClass::Map => self.mappings.as_mut().map(|mappings| mappings.take_changes()),
            EventClass::Reclaim => self.stalls.as_mut().map(|stalls| stalls.take_changes()),
        };
        changes.unwrap_or_default()
    }

    fn take_heap_changes(&mut self) -> ImageUsage {
        let now = [self.unmatched_frees, self.repeated_frees];
        let before = std::mem::replace(&mut self.frees_before, now);
        // A failed realloc removes an unmatched free.
        let [unmatched_frees, repeated_frees] = [0, 1].map(|index| now[index].wrapping_sub(before[index]));
        ImageUsage { unmatched_frees, repeated_frees, ..self.totals.take_changes() }
    }

    /// Removes and returns the changes of the sum of all stacks that lead to `usage`.
    fn take_last_sum(&mut self, usage: &ImageUsage) -> ImageUsage {
        let change = self.take_heap_changes();
        let mut sum = usage.total;
        self.totals.iter().for_each(|(_, totals)| sum -= totals.quantities());
        sum += change.total;
        ImageUsage {
            ended: usage.ended,
            unmatched_frees: change.unmatched_frees,
            repeated_frees: change.repeated_frees,
            merged_stacks: change.merged_stacks,
            ..ImageUsage::of_sum(sum)
        }
    }

    /// Current totals of one class.
    fn totals_of(&self, class: EventClass) -> ImageUsage {
        let totals = match class {
            EventClass::Heap => Some(self.usage(None, Tick(0), &Settings::UNLIMITED)),
            EventClass::Fault => self.pages.as_ref().map(|pages| pages.totals_at(None)),
            EventClass::Map => self.mappings.as_ref().map(|mappings| mappings.totals_at(None)),
            EventClass::Reclaim => self.stalls.as_ref().map(|stalls| stalls.usage(None)),
        };
        totals.unwrap_or_default()
    }
}
