//! Memory of one process image, by event class.

use memtrace_model::{
    EventClass, ImageEnd, ImageRusage, ImageUsage, Magnitude, Pid, Quantities, Quantity, StackId, StackKey, Tick,
};
use rustc_hash::FxHashSet;

use super::budget::{Budget, Settings};
use super::heap::Heap;
use super::mappings::Mappings;
use super::pages::Pages;
use super::stack_totals::ImageTotals;
use super::stalls::ImageStalls;

/// State of one process image.
#[derive(Debug, Default)]
pub(super) struct Image {
    pub(super) heap: Heap,
    pub(super) pages: Option<Box<Pages>>,
    pub(super) stalls: Option<Box<ImageStalls>>,
    /// Parent, if the fork was recorded.
    pub(super) copy_of: Option<Pid>,
    pub(super) mappings: Option<Box<Mappings>>,
    /// True if page faults are ignored, because the allocations of the process are sampled instead.
    pub(super) leaves_out_pages: bool,
    /// True if a child has inherited pages or mappings.
    pub(super) has_forked: bool,
    /// True if a delta has changes of this image.
    is_in_delta: bool,
    /// True if earlier deltas lack the frames of the stacks.
    has_unsent_frames: bool,
}

impl Image {
    /// Returns the number of stacks that count towards the limit.
    pub(super) fn limited_stacks(&self) -> u32 {
        let totals: u32 = self.all_totals().map(ImageTotals::limited).sum();
        totals + self.stalls.as_ref().map_or(0, |stalls| stalls.limited())
    }

    /// Returns the stacks that can be merged.
    pub(super) fn idle_stacks(&self) -> Vec<(EventClass, StackKey, Magnitude)> {
        let mut all = Vec::new();
        let mut add = |class, idle: &mut dyn Iterator<Item = (StackKey, Quantities)>| {
            all.extend(idle.map(|(key, usage)| (class, key, Magnitude::of(class, &usage))));
        };
        add(EventClass::Heap, &mut self.heap.idle());
        if let Some(pages) = &self.pages {
            add(EventClass::Fault, &mut pages.totals().idle(|_| false));
        }
        if let Some(mappings) = &self.mappings {
            add(EventClass::Map, &mut mappings.idle());
        }
        if let Some(stalls) = &self.stalls {
            add(EventClass::Reclaim, &mut stalls.idle());
        }
        all
    }

    /// Merges one of [`Self::idle_stacks`]. Returns how many stacks it counts as in the limit; 0 if it is unknown.
    pub(super) fn merge_stack(&mut self, class: EventClass, key: StackKey, budget: &Budget) -> u32 {
        u32::from(match class {
            EventClass::Heap => {
                let before = self.heap.totals.limited();
                self.heap.totals.merge_stack(key);
                return before - self.heap.totals.limited();
            }
            EventClass::Fault => self.pages.as_mut().is_some_and(|pages| pages.merge_stack(key)),
            EventClass::Map => self.mappings.as_mut().is_some_and(|mappings| mappings.merge_stack(key)),
            EventClass::Reclaim => self.stalls.as_mut().is_some_and(|stalls| stalls.merge_stack(key, budget)),
        })
    }

    /// Returns the stacks with live blocks, pages or mappings.
    pub(super) fn live_stacks(&self) -> FxHashSet<StackId> {
        self.all_totals().flat_map(ImageTotals::live_stacks).collect()
    }

    /// Iterates over the stacks of inherited pages and mappings.
    pub(super) fn inherited_stacks(&self) -> impl Iterator<Item = StackId> {
        self.all_totals().flat_map(ImageTotals::inherited_stacks)
    }

    /// Iterates over the stacks with their magnitudes. A stack occurs once for each event class and part.
    pub(super) fn magnitudes(&self) -> impl Iterator<Item = (EventClass, StackId, Magnitude)> {
        let heap = self.heap.totals.iter().map(|(_, totals)| (EventClass::Heap, totals));
        let pages = self.pages.iter().flat_map(|pages| pages.totals().iter());
        let mappings = self.mappings.iter().flat_map(|mappings| mappings.totals().iter());
        let blocks = heap
            .chain(pages.map(|(_, totals)| (EventClass::Fault, totals)))
            .chain(mappings.map(|(_, totals)| (EventClass::Map, totals)))
            .map(|(class, totals)| (class, totals.key.stack, Magnitude::of(class, &totals.quantities())));
        let stalls = self.stalls.iter().flat_map(|stalls| stalls.idle());
        let class = EventClass::Reclaim;
        blocks.chain(stalls.map(move |(key, usage)| (class, key.stack, Magnitude::of(class, &usage))))
    }

    /// Iterates over the totals by stack of blocks, pages and mappings.
    fn all_totals(&self) -> impl Iterator<Item = &ImageTotals> {
        let pages = self.pages.iter().map(|pages| pages.totals());
        let mappings = self.mappings.iter().map(|mappings| mappings.totals());
        [&self.heap.totals].into_iter().chain(pages).chain(mappings)
    }

    /// Leaves the stacks of this new image out of deltas. Deltas have the sum of its blocks instead.
    pub(super) fn defer_stacks(&mut self) {
        self.heap.totals.defer_stacks();
        self.has_unsent_frames = true;
    }

    /// Returns true if the stacks are left out of deltas.
    pub(super) const fn defers_stacks(&self) -> bool {
        self.heap.totals.defers_stacks()
    }

    /// Adds the stacks to the next delta, if they were left out so far.
    pub(super) fn send_stacks(&mut self) {
        self.heap.totals.send_stacks();
    }

    /// Returns true if the next delta needs the frames of all stacks: once, after [`Self::send_stacks`].
    pub(super) const fn takes_frames(&mut self) -> bool {
        let takes = self.has_unsent_frames && !self.defers_stacks();
        self.has_unsent_frames &= !takes;
        takes
    }

    /// Removes and returns the changes since the last delta. Classes without changes are left out.
    pub(super) fn take_changes(&mut self) -> Vec<(EventClass, ImageUsage)> {
        self.is_in_delta = true;
        let changes = EventClass::ALL.iter().map(|&class| (class, self.take_changes_of(class)));
        changes.filter(|(_, change)| *change != ImageUsage::default()).collect()
    }

    /// Removes and returns the last changes of one class. `usage`: final totals of the class. Only these last
    /// changes have the high-water mark.
    pub(super) fn take_last_changes(&mut self, class: EventClass, usage: &ImageUsage) -> ImageUsage {
        if class == EventClass::Heap && self.defers_stacks() {
            return self.heap.take_last_sum(usage);
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

    /// Records the end of all blocks from earlier epochs, because the blocks end with their image. This is not
    /// needed if no delta has live amounts of the image.
    pub(super) fn end_blocks(&mut self, budget: &mut Budget) {
        // All stacks are sent before a mark, so the blocks of deferred stacks are from the current epoch.
        if self.is_in_delta && !self.defers_stacks() {
            self.heap.end_blocks(budget);
        }
    }

    /// Returns the usage of the image at its end, and releases its live blocks, pages and mapped ranges from the
    /// budget.
    pub(super) fn usage_at_end(
        &self,
        end: ImageEnd,
        at: Tick,
        counts: ImageRusage,
        settings: &Settings,
        budget: &mut Budget,
    ) -> Vec<(EventClass, ImageUsage)> {
        let mut all = Vec::new();
        budget.remove_live(self.heap.blocks(), self.heap.live());
        if let Some(pages) = &self.pages {
            budget.pages -= pages.count();
            all.push((EventClass::Fault, ImageUsage { counts, ..pages.usage(Some(end)) }));
        }
        if let Some(stalls) = &self.stalls {
            all.push((EventClass::Reclaim, stalls.usage(Some(end))));
        }
        if let Some(mappings) = &self.mappings {
            budget.mapped_ranges -= mappings.count();
            all.push((EventClass::Map, mappings.usage(Some(end))));
        }
        let usage = self.heap.usage(Some(end), at, settings);
        if has_usage(&usage) {
            all.push((EventClass::Heap, usage));
        }
        all
    }

    /// Removes and returns the changes of one class since the last delta.
    fn take_changes_of(&mut self, class: EventClass) -> ImageUsage {
        let changes = match class {
            EventClass::Heap => return self.heap.take_changes(),
            EventClass::Fault => self.pages.as_mut().map(|pages| pages.take_changes()),
            EventClass::Map => self.mappings.as_mut().map(|mappings| mappings.take_changes()),
            EventClass::Reclaim => self.stalls.as_mut().map(|stalls| stalls.take_changes()),
        };
        changes.unwrap_or_default()
    }

    /// Returns the current totals of one class.
    fn totals_of(&self, class: EventClass) -> ImageUsage {
        let totals = match class {
            EventClass::Heap => Some(self.heap.usage(None, Tick(0), &Settings::UNLIMITED)),
            EventClass::Fault => self.pages.as_ref().map(|pages| pages.totals_at(None)),
            EventClass::Map => self.mappings.as_ref().map(|mappings| mappings.totals_at(None)),
            EventClass::Reclaim => self.stalls.as_ref().map(|stalls| stalls.usage(None)),
        };
        totals.unwrap_or_default()
    }
}

/// Returns true if the image has any usage. A forked child that execs at once has none.
pub(super) fn has_usage(usage: &ImageUsage) -> bool {
    let frees = [usage.unmatched_frees, usage.repeated_frees, usage.unmatched_samples, usage.demotion.frees];
    let has_events = frees != [0; 4] || usage.shares_memory_of.is_some();
    !usage.total.is_zero() || has_events || usage.counts != ImageRusage::default()
}
