//! Distinct values with indices.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

/// Distinct values, with indices ordered by arrival. There are far fewer than 2^32 values.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    all: Vec<T>,
    known: HashTable<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), known: HashTable::new() }
    }
}

impl<T: Hash + Eq> Numbered<T> {
    /// Returns the index of `value`. If the value is new, `make` creates the copy that is stored.
    pub(super) fn number<Q: Hash + Eq + ?Sized>(&mut self, value: &Q, make: impl FnOnce() -> T) -> u32
    where
        T: Borrow<Q>,
    {
        let all = &mut self.all;
        let is_value = |&number: &u32| all[number as usize].borrow() == value;
        let hash_of = |&number: &u32| FxBuildHasher.hash_one(all[number as usize].borrow());
        match self.known.entry(FxBuildHasher.hash_one(value), is_value, hash_of) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = all.len() as u32;
                entry.insert(number);
                all.push(make());
                number
            }
        }
    }

    /// Returns the index of `value`, if it is known.
    pub(super) fn find<Q: Hash + Eq + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        self.known.find(FxBuildHasher.hash_one(value), |&number| self.all[number as usize].borrow() == value).copied()
    }

    /// Returns the value with this index.
    pub(super) fn get(&self, number: u32) -> &T {
        &self.all[number as usize]
    }

    /// Returns the value with this index, to replace it by an equal one.
    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.all[number as usize]
    }

    /// Iterates over the values ordered by index.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.all.iter()
    }

    /// Iterates over the values. The caller may only change fields that are not part of equality and hash.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut()
    }

    /// Returns the number of values.
    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }
}
