//! Touched pages of one image.
//!
//! A page is attributed to the stack of the fault that gave it to the process: the first touch, the first write to a page
//! that was only read before, or the write to a page that has been shared with another process since a fork. No
//! event reports the release of pages; resident pages are read from the page tables instead
//! (`reconcile::residency`).
//!
//! Small pages can be a sample. Huge pages are not sampled: each is counted when the kernel maps it. When the kernel
//! splits a huge page, its small pages in the sample replace it, because only touches of these pages arrive.

use memtrace_model::{
    AbsAddr, Amount, Bytes, HUGE_PAGE, ImageEnd, ImageUsage, LossReason, PAGE, Pid, Quantities, Quantity, StackKey,
    Touch, Touched, is_sampled,
};
use rustc_hash::FxHashMap;

use super::address_table::{AddressTable, Addressed, Slot};
use super::budget::Budget;
use super::stack_totals::ImageTotals;

/// Touched pages and their totals.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Small pages. No small page is inside of a huge page of `huge`.
    pages: AddressTable<Page>,
    huge: AddressTable<Page>,
    totals: ImageTotals,
    /// Additional totals by stack index. Stacks beyond the end of the list have no additional totals.
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
    /// Number of small pages in the live huge pages.
    huge_live: u64,
    /// Number of small pages in huge pages. A huge page counts once for each fault that has mapped it.
    huge_alloc: u64,
}

/// A touch of a page.
const TOUCH: Touches = Touches { major_faults: 0, squares: 1, huge_live: 0, huge_alloc: 0 };

/// A fault that maps a huge page.
const HUGE_TOUCH: Touches =
    Touches { major_faults: 0, squares: 0, huge_live: PAGES_OF_HUGE, huge_alloc: PAGES_OF_HUGE };

impl Touches {
    const fn add(&mut self, other: Self) {
        self.major_faults = self.major_faults.wrapping_add(other.major_faults);
        self.squares = self.squares.wrapping_add(other.squares);
        self.huge_live = self.huge_live.wrapping_add(other.huge_live);
        self.huge_alloc = self.huge_alloc.wrapping_add(other.huge_alloc);
    }

    const fn subtract(&mut self, other: Self) {
        self.major_faults = self.major_faults.wrapping_sub(other.major_faults);
        self.squares = self.squares.wrapping_sub(other.squares);
        self.huge_live = self.huge_live.wrapping_sub(other.huge_live);
        self.huge_alloc = self.huge_alloc.wrapping_sub(other.huge_alloc);
    }

    /// Returns the quantities of these touches, or of their changes, which wrap below zero.
    const fn quantities(self) -> Quantities {
        Quantities::ZERO
            .with(Quantity::MajorFaults, self.major_faults)
            .with(Quantity::AllocVariance, self.squares)
            .with(Quantity::HugeLiveBytes, self.huge_live.wrapping_mul(PAGE.0))
            .with(Quantity::HugeAllocBytes, self.huge_alloc.wrapping_mul(PAGE.0))
    }
}

/// Touched page, small or huge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    /// Page address. The low bits contain the state of the page.
    address_and_state: u64,
    /// Index of the stack in the totals.
    stack: u32,
    /// Number of times that the page was attributed to a stack; 0 for a huge page.
    touches: u32,
}

/// State bit: the process has written to the page.
const WRITTEN: u64 = 1 << 0;
/// State bit: the page is huge.
const HUGE: u64 = 1 << 1;

/// Number of small pages in a huge page.
const PAGES_OF_HUGE: u64 = HUGE_PAGE.0 / PAGE.0;

impl Page {
    const fn is_written(&self) -> bool {
        self.address_and_state & WRITTEN != 0
    }

    const fn is_huge(&self) -> bool {
        self.address_and_state & HUGE != 0
    }

    /// Returns the same page at another address.
    const fn at(self, address: AbsAddr) -> Self {
        Self { address_and_state: address.0 | self.address_and_state & (PAGE.0 - 1), ..self }
    }

    const fn pages(&self) -> u64 {
        if self.is_huge() { PAGES_OF_HUGE } else { 1 }
    }

    const fn amount(&self) -> Amount {
        if self.is_huge() { Amount { bytes: HUGE_PAGE, count: PAGES_OF_HUGE } } else { Amount::one(PAGE) }
    }
}

/// Returns the address of the huge page that contains `address`.
const fn huge_page_of(address: AbsAddr) -> AbsAddr {
    AbsAddr(address.0 & !(HUGE_PAGE.0 - 1))
}

/// Returns the addresses of the small pages in the huge page at `huge`.
fn pages_of(huge: AbsAddr) -> impl Iterator<Item = AbsAddr> {
    (0..PAGES_OF_HUGE).map(move |number| AbsAddr(huge.0 + number * PAGE.0))
}

impl Addressed for Page {
    fn address(&self) -> AbsAddr {
        AbsAddr(self.address_and_state & !(PAGE.0 - 1))
    }
}

impl Pages {
    /// Adds a touch of a page of the process `pid`.
    pub(super) fn touch(&mut self, pid: Pid, page: AbsAddr, touch: Touch, key: StackKey, budget: &mut Budget) {
        let page = AbsAddr(page.0 & !(PAGE.0 - 1));
        if let Some(huge) = self.huge.get(huge_page_of(page)).copied() {
            // As for a small page, a fault on a present page keeps the attribution, unless it is the first write.
            if touch.present && (!touch.write || huge.is_written()) {
                return;
            }
            if !touch.huge {
                self.split(huge, pid, budget);
            }
        }
        if touch.huge {
            self.touch_huge(page, touch, key, budget);
        } else {
            self.touch_small(page, touch, key, budget);
        }
    }

    fn touch_small(&mut self, page: AbsAddr, touch: Touch, key: StackKey, budget: &mut Budget) {
        let state = if touch.write { WRITTEN } else { 0 };
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
                self.add_touches(stack, TOUCH);
            }
        }
    }

    /// Adds a fault on the small page `fault` that has mapped the huge page around it.
    fn touch_huge(&mut self, fault: AbsAddr, touch: Touch, key: StackKey, budget: &mut Budget) {
        let address = huge_page_of(fault);
        let known = self.huge.remove(address);
        if known.is_none() && budget.pages >= budget.max_blocks {
            budget.losses.add(LossReason::LedgerFull, 1);
            return;
        }
        let stack = self.totals.index_or_insert(key, budget);
        let state = if touch.write { WRITTEN | HUGE } else { HUGE };
        let huge = Page { address_and_state: address.0 | state, stack, touches: 0 };
        self.totals.alloc(stack, huge.amount());
        self.add_touches(stack, HUGE_TOUCH);
        match known {
            Some(known) => self.release_huge(&known),
            None => budget.pages += 1,
        }
        // If the page of the fault is in the sample, the previous event reported the same fault as a touch of a small
        // page. The fault must not count twice.
        if let Some(page) = self.pages.get(fault).copied().filter(|page| page.stack == stack) {
            self.pages.remove(fault);
            budget.pages -= 1;
            self.totals.retract(stack, page.amount());
            let square = 2 * u64::from(page.touches) - 1;
            self.remove_touches(stack, Touches { squares: square, ..Touches::default() });
        }
        // A huge page is mapped where there is no page table, so the small pages were released.
        self.release_small(address, budget);
        self.insert_huge(huge);
    }

    /// Counts a huge page as released.
    fn release_huge(&mut self, huge: &Page) {
        self.totals.free(huge.stack, huge.amount());
        self.remove_touches(huge.stack, Touches { huge_live: PAGES_OF_HUGE, ..Touches::default() });
    }

    /// Removes the small pages in the huge page at `address`.
    fn release_small(&mut self, address: AbsAddr, budget: &mut Budget) {
        for page in pages_of(address) {
            if let Some(page) = self.pages.remove(page) {
                budget.pages -= 1;
                self.totals.free(page.stack, page.amount());
            }
        }
    }

    /// Adds a huge page that is counted already.
    fn insert_huge(&mut self, huge: Page) {
        if let Slot::Vacant(entry) = self.huge.slot(huge.address()) {
            entry.insert(huge);
        }
    }

    /// Replaces a huge page by its small pages that are in the sample. Their number is an estimate of the 512 pages
    /// that were counted before.
    fn split(&mut self, huge: Page, pid: Pid, budget: &mut Budget) {
        if self.huge.remove(huge.address()).is_none() {
            return;
        }
        budget.pages -= 1;
        self.totals.retract(huge.stack, huge.amount());
        self.remove_touches(huge.stack, HUGE_TOUCH);
        for address in pages_of(huge.address()) {
            if !is_sampled(pid.0, address.0, budget.page_sample) {
                continue;
            }
            if budget.pages >= budget.max_blocks {
                budget.losses.add(LossReason::LedgerFull, 1);
                continue;
            }
            if let Slot::Vacant(entry) = self.pages.slot(address) {
                let state = huge.address_and_state & WRITTEN;
                let page = Page { address_and_state: address.0 | state, stack: huge.stack, touches: 1 };
                entry.insert(page);
                budget.pages += 1;
                self.totals.alloc(huge.stack, page.amount());
                self.add_touches(huge.stack, TOUCH);
            }
        }
    }

    /// Returns the huge pages with a part in the range of `bytes` from `begin` on.
    fn huge_pages_in(&self, begin: u64, bytes: Bytes) -> Vec<Page> {
        let end = begin.saturating_add(bytes.0);
        let first = huge_page_of(AbsAddr(begin)).0;
        let is_inside = |address: u64| (first..end).contains(&address);
        if (end - first) / HUGE_PAGE.0 <= self.huge.len() as u64 {
            let addresses = (first..end).step_by(HUGE_PAGE.0 as usize);
            addresses.filter_map(|address| self.huge.get(AbsAddr(address)).copied()).collect()
        } else {
            // A large range can have few huge pages, so the huge pages are visited instead of the range.
            self.huge.iter().filter(|huge| is_inside(huge.address().0)).copied().collect()
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

    fn remove_touches(&mut self, stack: u32, touches: Touches) {
        self.touches(stack).subtract(touches);
        if self.totals.tracks_changes() {
            self.new_touches.entry(self.totals.key(stack)).or_default().subtract(touches);
        }
    }

    fn touches(&mut self, stack: u32) -> &mut Touches {
        let stack = stack as usize;
        if self.touches.len() <= stack {
            self.touches.resize(stack + 1, Touches::default());
        }
        &mut self.touches[stack]
    }

    /// Returns the pages of a forked child: the pages of the parent, marked as not written. If the budget is
    /// exceeded, counts a loss and returns `None`.
    pub(super) fn fork(&self, budget: &mut Budget) -> Option<Box<Self>> {
        let count = self.count();
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
            child.add_touches(page.stack, TOUCH);
        }
        for huge in self.huge.iter() {
            child.insert_huge(Page { address_and_state: huge.address().0 | HUGE, ..*huge });
            // The totals of an ended image subtract one from the squares for each inherited page, so the squares begin
            // with the number of pages. The squares matter only with sampling, and then forks are not recorded.
            child.add_touches(huge.stack, Touches { squares: PAGES_OF_HUGE, ..HUGE_TOUCH });
        }
        Some(Box::new(child))
    }

    /// Moves `bytes` of pages from the first address to the second one (`mremap`).
    pub(super) fn move_range(&mut self, pid: Pid, [old, new]: [AbsAddr; 2], bytes: Bytes, budget: &mut Budget) {
        let begin = old.0 & !(PAGE.0 - 1);
        self.move_huge_pages(pid, [begin, new.0], bytes, budget);
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
            let moved = page.at(address);
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

    /// Moves the huge pages of a range. The kernel splits a huge page if only a part of it moves, or if the new address
    /// has another position in a huge page (`move_page_tables`, mm/mremap.c).
    fn move_huge_pages(&mut self, pid: Pid, [old, new]: [u64; 2], bytes: Bytes, budget: &mut Budget) {
        if old == new || bytes.0 == 0 {
            return;
        }
        // `mremap` has unmapped the old pages at the new address.
        for huge in self.huge_pages_in(new, bytes) {
            self.split(huge, pid, budget);
        }
        let end = old.saturating_add(bytes.0);
        for huge in self.huge_pages_in(old, bytes) {
            let address = huge.address().0;
            let is_whole = old <= address && address.saturating_add(HUGE_PAGE.0) <= end;
            if !is_whole || !old.abs_diff(new).is_multiple_of(HUGE_PAGE.0) {
                self.split(huge, pid, budget);
                continue;
            }
            self.huge.remove(huge.address());
            let address = AbsAddr(new + (address - old));
            self.release_small(address, budget);
            self.insert_huge(huge.at(address));
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

    /// Returns the number of small and huge pages.
    pub(super) fn count(&self) -> u64 {
        (self.pages.len() + self.huge.len()) as u64
    }

    /// Returns the totals at the end of the image, or while it runs. At its end, an image has no pages.
    pub(super) fn totals_at(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = self.totals.memory_usage(ended);
        for ((index, totals), touches) in
            self.totals.iter().filter_map(|stack| Some((stack, self.touches.get(stack.0)?)))
        {
            if let Some(stack) = usage.by_stack.get_mut(&totals.key) {
                // The totals of an ended image leave out inherited pages, and have no live pages.
                let touches = match ended {
                    None => touches.quantities(),
                    Some(_) => Touches {
                        squares: touches.squares.wrapping_sub(self.totals.inherited(index).count),
                        huge_live: 0,
                        huge_alloc: touches.huge_alloc.min(stack.alloc().count),
                        ..*touches
                    }
                    .quantities(),
                };
                *stack += touches;
                usage.total += touches;
            }
        }
        usage
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        let mut changes = self.totals.take_changes();
        for (key, touches) in self.new_touches.drain() {
            let touches = touches.quantities();
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
        let mut pages: Vec<_> = self.pages.iter().chain(self.huge.iter()).copied().collect();
        pages.sort_unstable_by_key(|page| page.address_and_state);
        let range = |page: &Page| Touched {
            begin: page.address(),
            pages: page.pages(),
            key: self.totals.key(page.stack),
            huge: page.is_huge(),
        };
        let mut touched: Vec<Touched> = Vec::new();
        for page in pages.iter().map(range) {
            let is_next = |last: &Touched| last.key == page.key && last.huge == page.huge && last.end() == page.begin;
            match touched.last_mut() {
                Some(last) if is_next(last) => last.pages += page.pages,
                _ => touched.push(page),
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests;
