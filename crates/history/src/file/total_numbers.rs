//! Row numbers of totals, grouped by image. All numbers of an image are forgotten together.

use memtrace_model::{EventClass, ImageId, Part, StackEnd};
use rustc_hash::FxHashMap;

use crate::interval::{PathNumber, TotalKey};

/// Key of the totals of one stack within its image.
type StackOfImage = (EventClass, PathNumber, StackEnd, Part);

/// Row numbers of totals. Only images that can still change have entries.
#[derive(Debug)]
pub(super) struct TotalNumbers {
    by_image: FxHashMap<ImageId, FxHashMap<StackOfImage, i64>>,
    /// Number of remembered row numbers.
    known: usize,
    /// Maximum of `known`. If it is exceeded, all numbers are forgotten. A stack with a forgotten number gets
    /// another row, and readers add both rows.
    max_known: usize,
    last: i64,
    /// Keys that the open transaction has added.
    added: Vec<TotalKey>,
    /// Highest number before the open transaction.
    committed: i64,
}

impl TotalNumbers {
    /// Returns an empty collection, which remembers about `max_known` numbers.
    pub(super) fn new(max_known: usize) -> Self {
        Self { by_image: FxHashMap::default(), known: 0, max_known, last: 0, added: Vec::new(), committed: 0 }
    }

    /// Returns the row number of a total, and true if it is new.
    pub(super) fn number(&mut self, key: &TotalKey) -> (i64, bool) {
        let of_image = self.by_image.entry(key.image).or_default();
        let next = self.last + 1;
        let number = *of_image.entry(stack_of(key)).or_insert(next);
        let is_new = number == next;
        if is_new {
            self.last = next;
            self.known += 1;
            self.added.push(*key);
        }
        (number, is_new)
    }

    /// Keeps the numbers that the open transaction has added. Called after the transaction was committed.
    pub(super) fn commit(&mut self) {
        self.added.clear();
        self.committed = self.last;
        if self.known > self.max_known {
            self.by_image.clear();
            self.known = 0;
        }
    }

    /// Forgets the numbers that the open transaction has added. Called after the transaction has failed.
    pub(super) fn roll_back(&mut self) {
        for key in self.added.drain(..) {
            let of_image = self.by_image.get_mut(&key.image);
            self.known -= usize::from(of_image.and_then(|numbers| numbers.remove(&stack_of(&key))).is_some());
        }
        self.last = self.committed;
    }

    /// Reserves the next `count` numbers for rows without a key. The caller has no open transaction.
    pub(super) const fn reserve(&mut self, count: i64) {
        self.last += count;
        self.committed = self.last;
    }

    /// Returns the highest number.
    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    /// Replaces the row number of each merged total with the row number of the total that it was merged into.
    pub(super) fn replace(&mut self, replacements: &FxHashMap<i64, i64>) {
        for number in self.by_image.values_mut().flat_map(FxHashMap::values_mut) {
            *number = replacements.get(number).copied().unwrap_or(*number);
        }
    }

    /// Forgets the numbers of the totals of an image. They are not used again.
    pub(super) fn forget(&mut self, image: ImageId) {
        self.known -= self.by_image.remove(&image).map_or(0, |numbers| numbers.len());
    }
}

const fn stack_of(&TotalKey { class, path, end, part, .. }: &TotalKey) -> StackOfImage {
    (class, path, end, part)
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    fn key(pid: u32, path: u32) -> TotalKey {
        TotalKey {
            image: ImageId { pid: Pid(pid), ordinal: 0 },
            class: EventClass::Heap,
            path: PathNumber(path),
            end: StackEnd::Complete,
            part: Part::WHOLE,
        }
    }

    #[test]
    fn numbers_of_a_failed_transaction_are_used_again() {
        let mut numbers = TotalNumbers::new(10);
        let all = [key(1, 1), key(2, 1), key(1, 1)].map(|key| numbers.number(&key));
        assert_eq!(all, [(1, true), (2, true), (1, false)]);
        numbers.commit();
        assert_eq!(numbers.number(&key(1, 2)), (3, true));
        numbers.roll_back();
        assert_eq!([numbers.number(&key(1, 3)), numbers.number(&key(2, 1))], [(3, true), (2, false)]);
        numbers.commit();
        numbers.forget(ImageId { pid: Pid(2), ordinal: 0 });
        assert_eq!([numbers.number(&key(2, 1)), numbers.number(&key(1, 3))], [(4, true), (3, false)]);
        numbers.commit();
        numbers.reserve(2);
        numbers.replace(&[(3, 6)].into_iter().collect());
        let all = [key(1, 1), key(1, 3), key(1, 4)].map(|key| numbers.number(&key));
        assert_eq!(all, [(1, false), (6, false), (7, true)]);
        assert_eq!(numbers.last(), 7);
    }

    #[test]
    fn number_of_remembered_rows_is_bounded() {
        let mut numbers = TotalNumbers::new(3);
        for path in 0..=3 {
            numbers.number(&key(1, path));
        }
        numbers.commit();
        assert_eq!((numbers.known, numbers.number(&key(1, 0))), (0, (5, true)));
    }
}
