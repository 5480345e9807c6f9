//! Row numbers (`id` columns) that the writer remembers, so that it need not look them up.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// Numbers of the rows of a table by key.
#[derive(Debug)]
pub(super) struct Numbers<K> {
    known: FxHashMap<K, i64>,
    last: i64,
    /// Keys that the open transaction has added.
    added: Vec<K>,
    /// Highest number before the open transaction.
    committed: i64,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Self { known: FxHashMap::default(), last: 0, added: Vec::new(), committed: 0 }
    }
}

impl<K: Eq + Hash + Clone> Numbers<K> {
    /// Returns the number of `key`, and true if it is new.
    pub(super) fn number(&mut self, key: &K) -> (i64, bool) {
        if let Some(&number) = self.known.get(key) {
            return (number, false);
        }
        self.last += 1;
        self.known.insert(key.clone(), self.last);
        self.added.push(key.clone());
        (self.last, true)
    }

    /// Replaces the number of a key that [`Self::number`] has added.
    pub(super) fn set(&mut self, key: &K, number: i64) {
        self.known.insert(key.clone(), number);
    }

    /// Keeps the numbers that the open transaction has added. Called after the transaction was committed.
    pub(super) fn commit(&mut self) {
        self.added.clear();
        self.committed = self.last;
    }

    /// Forgets the numbers that the open transaction has added. Called after the transaction has failed.
    pub(super) fn roll_back(&mut self) {
        for key in self.added.drain(..) {
            self.known.remove(&key);
        }
        self.last = self.committed;
    }

    /// Reserves the next `count` numbers for rows without a known key. The caller has no open transaction.
    pub(super) const fn reserve(&mut self, count: i64) {
        self.last += count;
        self.committed = self.last;
    }

    /// Forgets all keys if there are more than `max`. Their numbers are not used again. The caller has no open
    /// transaction.
    pub(super) fn forget_all_above(&mut self, max: usize) {
        if self.known.len() > max {
            self.known.clear();
        }
    }

    /// Returns the highest number.
    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    /// Returns the number of a key, if it is known.
    pub(super) fn get(&self, key: &K) -> Option<i64> {
        self.known.get(key).copied()
    }

    /// Returns the known numbers.
    pub(super) fn known(&self) -> impl Iterator<Item = i64> + '_ {
        self.known.values().copied()
    }

    /// Forgets the keys of rows that were removed. Their numbers are not used again.
    pub(super) fn forget(&mut self, removed: &FxHashSet<i64>) {
        self.known.retain(|_, number| !removed.contains(number));
    }

    /// Forgets all keys that `is_kept` does not accept. Their numbers are not used again.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.known.retain(|key, _| is_kept(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_failed_transaction_are_used_again() {
        let mut numbers = Numbers::default();
        assert_eq!(
            [numbers.number(&'a'), numbers.number(&'b'), numbers.number(&'a')],
            [(1, true), (2, true), (1, false)]
        );
        numbers.commit();
        assert_eq!(numbers.number(&'c'), (3, true));
        numbers.roll_back();
        assert_eq!([numbers.number(&'d'), numbers.number(&'b')], [(3, true), (2, false)]);
        numbers.retain(|key| *key != 'd');
        assert_eq!(numbers.number(&'d'), (4, true));
        numbers.commit();
        numbers.reserve(2);
        numbers.retain(|key| *key != 'a');
        assert_eq!((numbers.last(), numbers.get(&'a'), numbers.get(&'b')), (6, None, Some(2)));
        assert_eq!(numbers.number(&'a'), (7, true));
        assert_eq!(numbers.known().collect::<std::collections::BTreeSet<_>>(), [2, 4, 7].into());
        numbers.forget(&[4, 7].into_iter().collect());
        assert_eq!(numbers.number(&'d'), (8, true));
        numbers.commit();
        numbers.forget_all_above(2);
        assert_eq!(numbers.number(&'d'), (8, false));
        numbers.forget_all_above(1);
        assert_eq!(numbers.number(&'d'), (9, true));
    }
}
