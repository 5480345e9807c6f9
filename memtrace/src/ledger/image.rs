//! The books of one image: what each event means.

use super::Settings;
use super::block::Block;
use super::books::Books;
use super::pages::Pages;
use super::parked::{Park, Parked};
use super::ranges::Ranges;
use super::stalls::Waits;
use super::table::{Place, Table};
use crate::model::{
    AbsAddr, Amount, Bytes, ImageEnd, ImageRusage, ImageUsage, LossReason, Losses, Partition, Pid, StackId, StackKey,
    StackUsage, Tick, Tid, Usage,
};

/// One program run by one process.
#[derive(Debug, Default)]
pub(super) struct Image {
    blocks: Table<Block>,
    parked: Parked,
    books: Books,
    unmatched_frees: u64,
    /// Those of its pages; most images have none.
    pub(super) pages: Option<Box<Pages>>,
    /// Those of its waits for memory; most images have none.
    pub(super) waits: Option<Box<Waits>>,
    /// The process whose copy it is, where that was told.
    pub(super) copy_of: Option<Pid>,
    /// Those of its mappings; most images have none.
    pub(super) ranges: Option<Box<Ranges>>,
}

/// What all images of a ledger share: how much there is, how much there may be, and what was lost.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) live: Amount,
    /// How many pages are in the books.
    pub(super) pages: u64,
    /// How many parts of mappings are in the books.
    pub(super) ranges: u64,
    pub(super) losses: Losses,
    /// There may be so many blocks, so many pages, and so many parts of mappings.
    pub(super) max_blocks: u64,
    stacks_left: u32,
}

impl Room {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            live: Amount::default(),
            pages: 0,
            ranges: 0,
            losses: Losses::default(),
            max_blocks: settings.blocks,
            stacks_left: settings.stacks,
        }
    }

    /// By what `key`, which is new, is booked: itself, or where there is no room for it, [`StackId::FAILED`], and a loss.
    pub(super) fn admit(&mut self, key: StackKey) -> StackKey {
        // These are few, and there is always room for them.
        if !key.stack.has_frames() && key.part == Partition::Whole {
            return key;
        }
        match self.stacks_left.checked_sub(1) {
            Some(left) => {
                self.stacks_left = left;
                key
            }
            None => {
                self.losses.add(LossReason::StacksFull, 1);
                StackKey::from(StackId::FAILED)
            }
        }
    }
}

impl Image {
    #[inline]
    pub(super) fn alloc(&mut self, address: AbsAddr, size: Bytes, key: StackKey, tick: Tick, room: &mut Room) {
        match self.blocks.place(address) {
            Place::Live(mut entry) => {
                let unseen = *entry.get();
                room.losses.add(LossReason::FreeUnseen, 1);
                self.books.free(unseen.stack, Amount::one(unseen.size));
                room.live -= Amount::one(unseen.size);
                let place = place_of(&mut self.books, key, room);
                *entry.get_mut() = Block { address, size, stack: place, tick };
                self.books.alloc(place, Amount::one(size));
            }
            Place::Unknown(entry) => {
                if room.live.count >= room.max_blocks {
                    room.losses.add(LossReason::LedgerFull, 1);
                    return;
                }
                let place = place_of(&mut self.books, key, room);
                entry.insert(Block { address, size, stack: place, tick });
                self.books.alloc(place, Amount::one(size));
            }
        }
        room.live += Amount::one(size);
    }

    #[inline]
    pub(super) fn free(&mut self, address: AbsAddr, room: &mut Room) {
        if self.give_up(address, room).is_none() {
            self.unmatched_frees += 1;
        }
    }

    pub(super) fn park(&mut self, tid: Tid, address: AbsAddr, room: &mut Room) {
        let block = self.give_up(address, room);
        if block.is_none() {
            self.unmatched_frees += 1;
        }
        self.parked.put(tid, Park { address, block });
    }

    pub(super) fn restore(&mut self, tid: Tid, address: AbsAddr, room: &mut Room) {
        let Some(park) = self.parked.take(tid, address) else { return };
        let Place::Unknown(entry) = self.blocks.place(address) else { return };
        match park.block {
            Some(block) => {
                entry.insert(block);
                self.books.restore(block.stack, Amount::one(block.size));
                room.live += Amount::one(block.size);
            }
            None => self.unmatched_frees -= 1,
        }
    }

    pub(super) const fn live(&self) -> Amount {
        self.books.live()
    }

    /// The image's numbers: at its end, or, while it runs, at the moment `now`.
    pub(super) fn usage(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> ImageUsage {
        let mut usage = ImageUsage { ended, unmatched_frees: self.unmatched_frees, ..ImageUsage::default() };
        usage.peak = settings.track_peak.then_some(self.books.peak());
        let old_enough = settings.older.map(|older| self.live_since(latest_tick(now, older)));
        let mut by_stack = Vec::with_capacity(self.books.len());
        for (place, book) in self.books.iter().enumerate() {
            let mut of_stack =
                Usage { live: book.live, alloc: book.alloc, free: book.alloc - book.live, ..Usage::default() };
            if ended == Some(ImageEnd::Exec) {
                usage.discarded += book.live;
                of_stack.live = Amount::default();
            } else if let Some(old_enough) = &old_enough {
                of_stack.live = old_enough[place];
            }
            usage.total += of_stack;
            let at_peak = if settings.track_peak { self.books.at_peak(book) } else { Bytes(0) };
            by_stack.push((book.key, StackUsage { usage: of_stack, at_peak, ..StackUsage::default() }));
        }
        // Made at once, the map is as small as can be.
        usage.by_stack = by_stack.into_iter().collect();
        usage
    }

    /// What is live and was allocated at `latest` or before, by the stack's place; nothing where there is no such tick.
    fn live_since(&self, latest: Option<Tick>) -> Vec<Amount> {
        let mut live = vec![Amount::default(); self.books.len()];
        for block in self.blocks.iter().filter(|block| latest.is_some_and(|latest| block.tick <= latest)) {
            if let Some(amount) = live.get_mut(block.stack as usize) {
                *amount += Amount::one(block.size);
            }
        }
        live
    }

    /// Takes a block out of the books of the living.
    #[inline]
    fn give_up(&mut self, address: AbsAddr, room: &mut Room) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        self.books.free(block.stack, Amount::one(block.size));
        room.live -= Amount::one(block.size);
        Some(block)
    }
}

/// The place of `key` in the books; that of [`StackId::FAILED`], and a loss, where there is no room for it.
#[inline]
pub(super) fn place_of(books: &mut Books, key: StackKey, room: &mut Room) -> u32 {
    books.place_of(key).unwrap_or_else(|| new_place(books, key, room))
}

#[cold]
fn new_place(books: &mut Books, key: StackKey, room: &mut Room) -> u32 {
    let admitted = room.admit(key);
    let known = if admitted == key { None } else { books.place_of(admitted) };
    known.unwrap_or_else(|| books.open(admitted))
}

/// The latest tick that lies at least `older` before `now`.
fn latest_tick(now: Tick, older: std::time::Duration) -> Option<Tick> {
    let latest = now.since_start().checked_sub(older)?;
    Some(Tick::at(latest))
}

/// Whether anything happened in the image. `exec` right after a fork is common, and leaves nothing to tell.
pub(super) fn has_books(usage: &ImageUsage) -> bool {
    !usage.total.is_zero() || usage.unmatched_frees != 0 || usage.counts != ImageRusage::default()
}
