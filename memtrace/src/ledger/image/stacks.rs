//! Stacks of one image in all event classes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Image;
use crate::ledger::budget::Budget;
use crate::ledger::stack_totals::ImageTotals;
use crate::model::{EventClass, StackId, StackKey};

impl Image {
    /// Number of stacks that count towards the limit.
    pub(in crate::ledger) fn limited_stacks(&self) -> u32 {
        let totals: u32 = self.all_totals().map(ImageTotals::limited).sum();
        totals + self.stalls.as_ref().map_or(0, |stalls| stalls.limited())
    }

    /// Stacks that can be merged, with the bytes that they have allocated.
    pub(in crate::ledger) fn idle_stacks(&self) -> Vec<(u64, EventClass, StackKey)> {
        let pinned: FxHashSet<u32> = self.tentative_frees.stacks().collect();
        let mut all = Vec::new();
        let mut add = |class, idle: &mut dyn Iterator<Item = (u64, StackKey)>| {
            all.extend(idle.map(|(weight, key)| (weight, class, key)));
        };
        add(EventClass::Heap, &mut self.totals.idle(|index| pinned.contains(&index)));
        if let Some(pages) = &self.pages {
            add(EventClass::Fault, &mut pages.totals().idle(|_| false));
        }
        if let Some(mappings) = &self.mappings {
            add(EventClass::Map, &mut mappings.idle().into_iter());
        }
        if let Some(stalls) = &self.stalls {
            add(EventClass::Reclaim, &mut stalls.idle());
        }
        all
    }

    /// Merges one of [`Self::idle_stacks`].
    pub(in crate::ledger) fn merge_stack(&mut self, class: EventClass, key: StackKey, budget: &Budget) -> bool {
        match class {
            EventClass::Heap => self.totals.merge_stack(key).is_some(),
            EventClass::Fault => self.pages.as_mut().is_some_and(|pages| pages.merge_stack(key)),
            EventClass::Map => self.mappings.as_mut().is_some_and(|mappings| mappings.merge_stack(key)),
            EventClass::Reclaim => self.stalls.as_mut().is_some_and(|stalls| stalls.merge_stack(key, budget)),
        }
    }

    /// Stacks with live blocks, pages or mappings.
    pub(in crate::ledger) fn live_stacks(&self) -> FxHashSet<StackId> {
        self.all_totals().flat_map(ImageTotals::live_stacks).collect()
    }

    /// Stacks of inherited pages and mappings.
    pub(in crate::ledger) fn inherited_stacks(&self) -> impl Iterator<Item = StackId> {
        self.all_totals().flat_map(ImageTotals::inherited_stacks)
    }

    /// Allocated bytes by stack.
    pub(in crate::ledger) fn allocated_by_stack(&self) -> FxHashMap<StackId, u64> {
        let mut bytes = FxHashMap::default();
        for (_, totals) in self.all_totals().flat_map(ImageTotals::iter) {
            *bytes.entry(totals.key.stack).or_default() += totals.alloc.bytes.0;
        }
        bytes
    }

    fn all_totals(&self) -> impl Iterator<Item = &ImageTotals> {
        let pages = self.pages.iter().map(|pages| pages.totals());
        let mappings = self.mappings.iter().map(|mappings| mappings.totals());
        [&self.totals].into_iter().chain(pages).chain(mappings)
    }
}
