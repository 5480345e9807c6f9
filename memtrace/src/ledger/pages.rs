//! The books of one image's pages.
//!
//! A page belongs to the stack that made it the process' own: by touching it when it was not there, by the first write to
//! a page that was only read before, or by writing to one that it had as a copy of another process. That a page is gone is
//! not heard of: whoever is asked what is resident knows that better (`pipeline::residence`).

use super::books::Books;
use super::image::{Room, place_of};
use super::table::{Addressed, Place, Table};
use crate::model::{AbsAddr, Amount, Bytes, ImageEnd, ImageUsage, LossReason, PAGE, StackKey, Touch, Touched};

/// The books of one image's pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Table<Page>,
    books: Books,
    /// By the stacks' places in the books; those behind the end have none.
    touches: Vec<Touches>,
}

/// What else is known of the touches of one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Touches {
    /// How many had to wait for a device.
    waited: u64,
    /// How many there were of each page, squared and added up: where pages are sampled, all touches of a page are seen or
    /// none, so that a page that comes and goes weighs more. A touch after another stack's is held against the later one.
    squares: u64,
}

/// A page that was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    /// Its address, and in the bits that every page's has zero what was done to it.
    address_and_state: u64,
    /// The stack's place in the image's books.
    stack: u32,
    /// How often it was made the process' own.
    touches: u32,
}

/// The process itself has written to it.
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
    /// A page was touched.
    pub(super) fn touch(&mut self, page: AbsAddr, touch: Touch, key: StackKey, room: &mut Room) {
        let state = if touch.write { WRITTEN } else { 0 };
        let page = AbsAddr(page.0 & !(PAGE.0 - 1));
        let new = |stack, touches| Page { address_and_state: page.0 | state, stack, touches };
        match self.pages.place(page) {
            // It stays whose it is.
            Place::Live(entry) if touch.present && (!touch.write || entry.get().is_written()) => {}
            Place::Live(mut entry) => {
                self.books.free(entry.get().stack, Amount::one(PAGE));
                let stack = place_of(&mut self.books, key, room);
                let before = entry.get().touches;
                *entry.get_mut() = new(stack, before.saturating_add(1));
                self.books.alloc(stack, Amount::one(PAGE));
                self.touches(stack).squares += 2 * u64::from(before) + 1;
            }
            Place::Unknown(_) if room.pages >= room.max_blocks => room.losses.add(LossReason::LedgerFull, 1),
            Place::Unknown(entry) => {
                let stack = place_of(&mut self.books, key, room);
                entry.insert(new(stack, 1));
                room.pages += 1;
                self.books.alloc(stack, Amount::one(PAGE));
                self.touches(stack).squares += 1;
            }
        }
    }

    /// The last touch of a page had to wait for a device.
    pub(super) fn waited(&mut self, page: AbsAddr) {
        // What is not in the books was lost, and counted.
        let Some(page) = self.pages.get(AbsAddr(page.0 & !(PAGE.0 - 1))) else { return };
        let stack = page.stack;
        self.touches(stack).waited += 1;
    }

    fn touches(&mut self, stack: u32) -> &mut Touches {
        let stack = stack as usize;
        if self.touches.len() <= stack {
            self.touches.resize(stack + 1, Touches::default());
        }
        &mut self.touches[stack]
    }

    /// Those of a copy of the process: it has the same pages, and has written to none.
    pub(super) fn copied(&self, room: &mut Room) -> Option<Box<Self>> {
        let count = self.books.live().count;
        if room.pages + count > room.max_blocks {
            room.losses.add(LossReason::LedgerFull, count);
            return None;
        }
        room.pages += count;
        let mut pages = Table::default();
        for page in self.pages.iter() {
            if let Place::Unknown(entry) = pages.place(page.address()) {
                entry.insert(Page { address_and_state: page.address().0, stack: page.stack, touches: 1 });
            }
        }
        let mut copy = Self { pages, books: self.books.copied(), touches: Vec::new() };
        for page in self.pages.iter() {
            copy.touches(page.stack).squares += 1;
        }
        Some(Box::new(copy))
    }

    /// Pages lie elsewhere now: those of `bytes` from `old` on at `new`.
    pub(super) fn moved(&mut self, old: AbsAddr, new: AbsAddr, bytes: Bytes, room: &mut Room) {
        let begin = old.0 & !(PAGE.0 - 1);
        let moving: Vec<u64> = if bytes.0 / PAGE.0 <= self.count() {
            (begin..begin + bytes.0).step_by(PAGE.0 as usize).collect()
        } else {
            // Of a large reserve little may have been touched.
            let all = self.pages.iter().map(|page| page.address().0);
            all.filter(|page| (begin..begin + bytes.0).contains(page)).collect()
        };
        for address in moving {
            let Some(page) = self.pages.remove(AbsAddr(address)) else { continue };
            let address = AbsAddr(new.0 + (address - begin));
            let moved = Page { address_and_state: address.0 | page.address_and_state & (PAGE.0 - 1), ..page };
            match self.pages.place(address) {
                Place::Unknown(entry) => {
                    entry.insert(moved);
                }
                // What lay there has been unmapped.
                Place::Live(mut entry) => {
                    self.books.free(entry.get().stack, Amount::one(PAGE));
                    room.pages -= 1;
                    *entry.get_mut() = moved;
                }
            }
        }
    }

    /// How many pages there are.
    pub(super) const fn count(&self) -> u64 {
        self.books.live().count
    }

    /// The image's numbers: at its end, when its pages are gone, or while it runs.
    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = self.books.of_memory(ended);
        for (place, touches) in (0..).zip(&self.touches) {
            if let Some(stack) = usage.by_stack.get_mut(&self.books.key(place)) {
                // As the books of what has ended do, which leave out what was inherited.
                let inherited = if ended.is_some() { self.books.inherited(place as usize).count } else { 0 };
                stack.major_faults = touches.waited;
                stack.variance.alloc = touches.squares - inherited;
            }
        }
        if ended.is_none() {
            usage.touched = self.touched();
        }
        usage
    }

    /// All pages, in order, those side by side that are of the same stack as one.
    fn touched(&self) -> Vec<Touched> {
        let mut pages: Vec<_> = self.pages.iter().copied().collect();
        pages.sort_unstable_by_key(|page| page.address_and_state);
        let one = |page: &Page| Touched { begin: page.address(), pages: 1, key: self.books.key(page.stack) };
        let mut touched: Vec<Touched> = Vec::new();
        for page in pages.iter().map(one) {
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
