//! The books of one image's mappings.
//!
//! A mapping may be unmapped in parts, split and moved; each part stays whose it was. What is grown belongs to who grew it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::books::Books;
use super::image::{Room, place_of};
use crate::model::{AbsAddr, Amount, Bytes, ImageEnd, ImageUsage, LossReason, PAGE, StackKey, Tid, Touched};

/// So many threads may be about to unmap or move something; nobody says when one has ended.
const MOST_PARKED: usize = 1 << 15;

/// The books of one image's mappings.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// By their first addresses; none overlaps another.
    parts: BTreeMap<u64, Part>,
    /// What threads are about to unmap or move, in order.
    parked: FxHashMap<Tid, Parked>,
    books: Books,
    /// Bytes that were unmapped and are not in the books: mapped before tracing began.
    unmatched: u64,
}

/// A part of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// The address behind the last.
    end: u64,
    /// The stack's place in the image's books.
    stack: u32,
}

/// What a thread is about to unmap or move.
#[derive(Clone, Debug, Default)]
struct Parked {
    begin: u64,
    /// What was in the books of it.
    parts: Vec<(u64, Part)>,
}

impl Ranges {
    /// Addresses were mapped; what lay there is gone.
    pub(super) fn map(&mut self, begin: AbsAddr, size: Bytes, key: StackKey, room: &mut Room) {
        self.give_up(begin.0, begin.0 + size.0, room);
        self.put(begin.0, begin.0 + size.0, key, room);
    }

    /// Addresses are about to be unmapped or moved.
    pub(super) fn park(&mut self, tid: Tid, begin: AbsAddr, size: Bytes, room: &mut Room) {
        let parts = self.give_up(begin.0, begin.0 + size.0, room);
        let known: u64 = parts.iter().map(|(begin, part)| part.end - begin).sum();
        self.unmatched += u64::from(known < size.0);
        if self.parked.len() >= MOST_PARKED {
            self.parked.clear();
        }
        self.parked.insert(tid, Parked { begin: begin.0, parts });
    }

    /// They were not.
    pub(super) fn restore(&mut self, tid: Tid, room: &mut Room) {
        for (begin, part) in self.parked.remove(&tid).unwrap_or_default().parts {
            self.put_back(begin, part, room);
        }
    }

    /// They were moved: `old_size` from `old` on lie at `begin` now, and are `size`. Where `keeps`, the old ones are still mapped.
    pub(super) fn moved(
        &mut self,
        tid: Tid,
        [old, old_size]: [u64; 2],
        [begin, size]: [u64; 2],
        keeps: bool,
        key: StackKey,
        room: &mut Room,
    ) {
        // Where the record before this one was lost, an earlier call's is there.
        let parts = self.parked.remove(&tid).filter(|parked| parked.begin == old).unwrap_or_default().parts;
        self.give_up(begin, begin + size, room);
        if keeps {
            for &(begin, part) in &parts {
                self.put_back(begin, part, room);
            }
        }
        for (at, part) in parts {
            let moved = |address: u64| begin + (address - old).min(size);
            let (at, end) = (moved(at), moved(part.end));
            match keeps {
                true => self.put(at, end, key, room),
                false if at < end => self.put_back(at, Part { end, ..part }, room),
                false => {}
            }
        }
        if size > old_size {
            self.put(begin + old_size, begin + size, key, room);
        }
    }

    /// Those of a copy of the process.
    pub(super) fn copied(&self, room: &mut Room) -> Option<Box<Self>> {
        let count = self.parts.len() as u64;
        if room.ranges + count > room.max_blocks {
            room.losses.add(LossReason::LedgerFull, count);
            return None;
        }
        room.ranges += count;
        Some(Box::new(Self { parts: self.parts.clone(), books: self.books.copied(), ..Self::default() }))
    }

    /// How many parts there are.
    pub(super) fn count(&self) -> u64 {
        self.parts.len() as u64
    }

    /// The image's numbers: at its end, when its mappings are gone, or while it runs.
    pub(super) fn usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = self.books.of_memory(ended);
        usage.unmatched_frees = self.unmatched;
        if ended.is_none() {
            let range = |(&begin, part): (&u64, &Part)| Touched {
                begin: AbsAddr(begin),
                pages: pages(begin, part.end).count,
                key: self.books.key(part.stack),
            };
            usage.touched = self.parts.iter().map(range).collect();
        }
        usage
    }

    /// Books new addresses as those of `key`.
    fn put(&mut self, begin: u64, end: u64, key: StackKey, room: &mut Room) {
        if begin >= end {
            return;
        }
        if room.ranges >= room.max_blocks {
            room.losses.add(LossReason::LedgerFull, 1);
            return;
        }
        room.ranges += 1;
        let stack = place_of(&mut self.books, key, room);
        self.books.alloc(stack, pages(begin, end));
        self.parts.insert(begin, Part { end, stack });
    }

    /// Books a part again that was given up.
    fn put_back(&mut self, begin: u64, part: Part, room: &mut Room) {
        // Another thread may have mapped something there in between.
        if self.parts.range(..part.end).next_back().is_some_and(|(_, other)| other.end > begin) {
            return;
        }
        room.ranges += 1;
        self.books.restore(part.stack, pages(begin, part.end));
        self.parts.insert(begin, part);
    }

    /// Takes what is booked of these addresses out, and returns it in order.
    fn give_up(&mut self, begin: u64, end: u64, room: &mut Room) -> Vec<(u64, Part)> {
        let mut taken = Vec::new();
        // The last that begins before may reach in.
        let first = self.parts.range(..begin).next_back().filter(|(_, part)| part.end > begin).map(|(&first, _)| first);
        let keys: Vec<u64> = first.into_iter().chain(self.parts.range(begin..end).map(|(&first, _)| first)).collect();
        for first in keys {
            let Some(part) = self.parts.remove(&first) else { continue };
            room.ranges -= 1;
            let cut = (first.max(begin), Part { end: part.end.min(end), ..part });
            let left = [(first, cut.0), (cut.1.end, part.end)];
            self.books.free(part.stack, pages(cut.0, cut.1.end));
            for (begin, end) in left.into_iter().filter(|(begin, end)| begin < end) {
                room.ranges += 1;
                self.parts.insert(begin, Part { end, ..part });
            }
            taken.push(cut);
        }
        taken
    }
}

/// Addresses as bytes and pages.
const fn pages(begin: u64, end: u64) -> Amount {
    Amount { bytes: Bytes(end - begin), count: (end - begin) / PAGE.0 }
}

#[cfg(test)]
mod tests;
