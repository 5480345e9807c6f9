//! Touched pages of one image.
//!
//! A page is attributed to the stack of the fault that gave it to the process: the first touch, the first write to a page
//! that was only read before, or the write to a page that has been shared with another process since a fork. No
//! event reports the release of pages; resident pages are read from the page tables instead
//! (`reconcile::residency`).

use memtrace_model::{
    AbsAddr, Amount, Bytes, ImageEnd, ImageUsage, LossReason, PAGE, Quantities, Quantity, StackKey, Touch, Touched,
};
use rustc_hash::FxHashMap;

use super::address_table::{AddressTable, Addressed, Slot};
use super::budget::Budget;
use super::stack_totals::ImageTotals;

/// Touched pages and their totals.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: AddressTable<Page>,
    totals: ImageTotals,
    /// Additional totals by stack index. Stacks beyond the end of the list have none.
    touches: Vec<Touches>,
    /// Changes of `touches` since the last delta. The changes of merged stacks wrap below zero. Empty without
    /// deltas.
    new_touches: FxHashMap<StackKey, Touches>,
}

/// Additional totals of one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Touches {
    major_faults: u64,
    /// Sum over the pages of the squared number of touches. Sampling takes all touches of a page or none, so a page
    /// with many touches increases the variance of the estimate. If several stacks touch a page, each touch adds
    /// its increase of the square to its own stack.
    squares: u64,
}

impl Touches {
    const fn add(&mut self, other: Self) {
        self.major_faults = self.major_faults.wrapping_add(other.major_faults);
        self.squares = self.squares.wrapping_add(other.squares);
    }

    const fn subtract(&mut self, other: Self) {
        self.major_faults = self.major_faults.wrapping_sub(other.major_faults);
        self.squares = self.squares.wrapping_sub(other.squares);
    }
}

/// Touched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    /// Page address. The low bits contain the state of the page.
    address_and_state: u64,
    /// Index of the stack in the totals.
    stack: u32,
    /// Number of times that the page was attributed to a stack.
    touches: u32,
}

/// State bit: the process has written to the page.
const WRITTEN: u64 = 1 << 0;

impl Page {
    const fn is_written(&self) -> bool {
        self.address_and_state & WRITTEN != 0
    }
}

impl Addressed for Page {
    fn address(&self) -> AbsAddr {
        AbsAddr(self.address_and_state & !(PAGE.0 - 1))
    }
}

impl Pages {
    pub(super) fn touch(&mut self, page: AbsAddr, touch: Touch, key: StackKey, budget: &mut Budget) {
        let state = if touch.write { WRITTEN } else { 0 };
        let page = AbsAddr(page.0 & !(PAGE.0 - 1));
        let new = |stack, touches| Page { address_and_state: page.0 | state, stack, touches };
        match self.pages.slot(page) {
            // A fault on a present page keeps the attribution, unless the fault is the first write.
            Slot::Occupied(entry) if touch.present && (!touch.write || entry.get().is_written()) => {}
            Slot::Occupied(mut entry) => {
                self.totals.free(entry.get().stack, Amount::one(PAGE));
                let stack = self.totals.index_or_insert(key, budget);
                let before = entry.get().touches;
                *entry.get_mut() = new(stack, before.saturating_add(1));
                self.totals.alloc(stack, Amount::one(PAGE));
                self.add_touches(stack, Touches { squares: 2 * u64::from(before) + 1, ..Touches::default() });
            }
            Slot::Vacant(_) if budget.pages >= budget.max_blocks => budget.losses.add(LossReason::LedgerFull, 1),
            Slot::Vacant(entry) => {
                let stack = self.totals.index_or_insert(key, budget);
                entry.insert(new(stack, 1));
                budget.pages += 1;
                self.totals.alloc(stack, Amount::one(PAGE));
                self.add_touches(stack, Touches { squares: 1, ..Touches::default() });
            }
        }
    }

    /// Marks the latest touch of a page as a major fault.
    pub(super) fn add_major_fault(&mut self, page: AbsAddr) {
        // If the page is unknown, the loss of its touch was counted.
        let Some(page) = self.pages.get(AbsAddr(page.0 & !(PAGE.0 - 1))) else { return };
        let stack = page.stack;
        self.add_touches(stack, Touches { major_faults: 1, ..Touches::default() });
    }

    fn add_touches(&mut self, stack: u32, touches: Touches) {
        self.touches(stack).add(touches);
        if self.totals.tracks_changes() {
            self.new_touches.entry(self.totals.key(stack)).or_default().add(touches);
        }
    }

    fn touches(&mut self, stack: u32) -> &mut Touches {
        let stack = stack as usize;
        if self.touches.len() <= stack {
            self.touches.resize(stack + 1, Touches::default());
        }
        &mut self.touches[stack]
    }

    /// Returns the pages of a forked child: the pages of the parent, none of them written. If the budget is
    /// exceeded, counts a loss and returns `None`.
    pub(super) fn fork(&self, budget: &mut Budget) -> Option<Box<Self>> {
        let count = self.totals.live().count;
        if budget.pages + count > budget.max_blocks {
            budget.losses.add(LossReason::LedgerFull, count);
            return None;
        }
        let totals = self.totals.fork(budget)?;
        budget.pages += count;
        let mut pages = AddressTable::default();
        for page in self.pages.iter() {
            if let Slot::Vacant(entry) = pages.slot(page.address()) {
                entry.insert(Page { address_and_state: page.address().0, stack: page.stack, touches: 1 });
            }
        }
        let mut child = Self { pages, totals, ..Self::default() };
        for page in self.pages.iter() {
            child.add_touches(page.stack, Touches { squares: 1, ..Touches::default() });
        }
        Some(Box::new(child))
    }

    /// Moves `bytes` of pages from `old` to `new` (`mremap`).
    pub(super) fn move_range(&mut self, old: AbsAddr, new: AbsAddr, bytes: Bytes, budget: &mut Budget) {
        let begin = old.0 & !(PAGE.0 - 1);
        let moving: Vec<u64> = if bytes.0 / PAGE.0 <= self.count() {
            (begin..begin + bytes.0).step_by(PAGE.0 as usize).collect()
        } else {
            // A large range can have few touched pages, so the touched pages are visited instead of the range.
            let all = self.pages.iter().map(|page| page.address().0);
            all.filter(|page| (begin..begin + bytes.0).contains(page)).collect()
        };
        for address in moving {
            let Some(page) = self.pages.remove(AbsAddr(address)) else { continue };
            let address = AbsAddr(new.0 + (address - begin));
            let moved = Page { address_and_state: address.0 | page.address_and_state & (PAGE.0 - 1), ..page };
            match self.pages.slot(address) {
                Slot::Vacant(entry) => {
                    entry.insert(moved);
                }
                // `mremap` has unmapped the old page at this address.
                Slot::Occupied(mut entry) => {
                    self.totals.free(entry.get().stack, Amount::one(PAGE));
                    budget.pages -= 1;
                    *entry.get_mut() = moved;
                }
            }
        }
    }

    pub(super) const fn totals(&self) -> &ImageTotals {
        &self.totals
    }

    /// Merges a stack without pages into the sum of merged stacks.
    pub(super) fn merge_stack(&mut self, key: StackKey) -> bool {
        let Some([merged, other]) = self.totals.merge_stack(key) else { return false };
        let touches = std::mem::take(self.touches(merged));
        if self.totals.tracks_changes() {
            self.new_touches.entry(key).or_default().subtract(touches);
        }
        self.add_touches(other, touches);
        true
    }

    pub(super) const fn count(&self) -> u64 {
        self.totals.live().count
    }

    /// Returns the totals at the end of the image, or while it runs. At its end, an image has no pages.
    pub(super) fn totals_at(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = self.totals.memory_usage(ended);
        for ((index, totals), touches) in
            self.totals.iter().filter_map(|stack| Some((stack, self.touches.get(stack.0)?)))
        {
            if let Some(stack) = usage.by_stack.get_mut(&totals.key) {
                // The totals of an ended image leave out inherited pages.
                let inherited = if ended.is_some() { self.totals.inherited(index).count } else { 0 };
                let touches = Quantities::ZERO
                    .with(Quantity::MajorFaults, touches.major_faults)
                    .with(Quantity::AllocVariance, touches.squares - inherited);
                *stack += touches;
                usage.total += touches;
            }
        }
        usage
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        let mut changes = self.totals.take_changes();
        for (key, Touches { major_faults, squares }) in self.new_touches.drain() {
            let touches =
                Quantities::ZERO.with(Quantity::MajorFaults, major_faults).with(Quantity::AllocVariance, squares);
            if !touches.is_zero() {
                *changes.by_stack.entry(key).or_default() += touches;
                changes.total += touches;
            }
        }
        changes
    }

    /// Returns the usage at the end of the image, or while it runs. The usage of a running image has the touched
    /// pages.
    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let touched = if ended.is_none() { self.touched() } else { Vec::new() };
        ImageUsage { touched, ..self.totals_at(ended) }
    }

    /// Returns the touched pages ordered by address. Adjacent pages of one stack are one range.
    fn touched(&self) -> Vec<Touched> {
        let mut pages: Vec<_> = self.pages.iter().copied().collect();
        pages.sort_unstable_by_key(|page| page.address_and_state);
        let range = |page: &Page| Touched { begin: page.address(), pages: 1, key: self.totals.key(page.stack) };
        let mut touched: Vec<Touched> = Vec::new();
        for page in pages.iter().map(range) {
            match touched.last_mut() {
                Some(last) if last.key == page.key && last.end() == page.begin => last.pages += 1,
                _ => touched.push(page),
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests;
