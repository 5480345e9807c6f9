//! One image's numbers, by stack.

use rustc_hash::FxHashMap;

use crate::model::{Amount, Bytes, ImageEnd, ImageUsage, Partition, StackId, StackKey, StackUsage, Usage};

/// One stack's numbers. What was freed is what was allocated and is no longer live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Book {
    pub(super) key: StackKey,
    pub(super) live: Amount,
    pub(super) alloc: Amount,
    /// The live bytes when the image's peak was number `seen_peak`.
    at_peak: Bytes,
    /// The last peak of the image for which `at_peak` was noted.
    seen_peak: u64,
}

/// One image's numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    places: FxHashMap<StackId, u32>,
    /// Those of parts of the process, apart from the others, which need not be looked for by more than their stack.
    places_of_parts: FxHashMap<StackKey, u32>,
    books: Vec<Book>,
    /// What was there of each when they began as a copy of others, by its place; nothing where they did not.
    copied: Vec<Amount>,
    live: Amount,
    peak: Bytes,
    /// How often the live bytes have risen above all that were before.
    peaks: u64,
}

impl Books {
    /// The place of `key`, if it has one.
    #[inline]
    pub(super) fn place_of(&self, key: StackKey) -> Option<u32> {
        match key.part {
            Partition::Whole => self.places.get(&key.stack).copied(),
            Partition::Thread(_) | Partition::Allocator(_) | Partition::Memory(_) => {
                self.places_of_parts.get(&key).copied()
            }
        }
    }

    /// Gives `key` a place. The caller has seen that it has none.
    pub(super) fn open(&mut self, key: StackKey) -> u32 {
        // Places beyond 2^32 can't be reached: the number of stacks is bounded by a u32.
        let place = self.books.len() as u32;
        let nothing = Amount::default();
        self.books.push(Book { key, live: nothing, alloc: nothing, at_peak: Bytes(0), seen_peak: self.peaks });
        match key.part {
            Partition::Whole => self.places.insert(key.stack, place),
            Partition::Thread(_) | Partition::Allocator(_) | Partition::Memory(_) => {
                self.places_of_parts.insert(key, place)
            }
        };
        place
    }

    /// Blocks were allocated.
    #[inline]
    pub(super) fn alloc(&mut self, place: u32, amount: Amount) {
        self.change(place, |book| {
            book.live += amount;
            book.alloc += amount;
        });
        self.live += amount;
        self.notice_peak();
    }

    /// Blocks were freed.
    #[inline]
    pub(super) fn free(&mut self, place: u32, amount: Amount) {
        self.change(place, |book| book.live -= amount);
        self.live -= amount;
    }

    /// Blocks were not freed after all.
    pub(super) fn restore(&mut self, place: u32, amount: Amount) {
        self.change(place, |book| book.live += amount);
        self.live += amount;
        self.notice_peak();
    }

    /// Those of a copy: it has what is live, and got it by being made. What is not live it knows nothing of.
    pub(super) fn copied(&self) -> Self {
        let mut copy = self.clone();
        for book in &mut copy.books {
            book.alloc = book.live;
        }
        copy.copied = copy.books.iter().map(|book| book.alloc).collect();
        copy
    }

    /// Whose book is at `place`.
    pub(super) fn key(&self, place: u32) -> StackKey {
        self.books.get(place as usize).map_or(StackKey::from(StackId::FAILED), |book| book.key)
    }

    /// What books of memory come to, which is gone when its image has ended. Of a copy that has ended only what it did
    /// itself is told: most run another program at once, and would have their parent's numbers each time.
    pub(super) fn of_memory(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, ..ImageUsage::default() };
        for (place, book) in self.books.iter().enumerate() {
            let (live, alloc) = match ended {
                None => (book.live, book.alloc),
                Some(_) => (Amount::default(), book.alloc - self.inherited(place)),
            };
            let of_stack = Usage { live, alloc, free: alloc - live, ..Usage::default() };
            if ended.is_some() && of_stack.is_zero() {
                continue;
            }
            usage.total += of_stack;
            usage.by_stack.insert(book.key, StackUsage { usage: of_stack, ..StackUsage::default() });
        }
        usage
    }

    /// What the stack at `place` was given by being copied.
    pub(super) fn inherited(&self, place: usize) -> Amount {
        self.copied.get(place).copied().unwrap_or_default()
    }

    pub(super) const fn live(&self) -> Amount {
        self.live
    }

    pub(super) const fn peak(&self) -> Bytes {
        self.peak
    }

    /// How many stacks, or parts of the process with a stack, there are.
    pub(super) const fn len(&self) -> usize {
        self.books.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Book> {
        self.books.iter()
    }

    /// The stack's live bytes when the image's were highest.
    pub(super) const fn at_peak(&self, book: &Book) -> Bytes {
        if book.seen_peak < self.peaks { book.live.bytes } else { book.at_peak }
    }

    /// Changes a book, noting first what was live if nothing has changed since the last peak: so a peak costs nothing
    /// for the stacks that do not change.
    #[inline]
    fn change(&mut self, place: u32, change: impl FnOnce(&mut Book)) {
        if let Some(book) = self.books.get_mut(place as usize) {
            if book.seen_peak < self.peaks {
                book.at_peak = book.live.bytes;
                book.seen_peak = self.peaks;
            }
            change(book);
        }
    }

    #[inline]
    fn notice_peak(&mut self) {
        if self.live.bytes > self.peak {
            self.peak = self.live.bytes;
            self.peaks += 1;
        }
    }
}
