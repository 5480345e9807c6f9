//! A set that forgets its content when it is full.

use std::collections::HashSet;
use std::hash::Hash;

/// Set of at most `limit` values, for work that may be repeated now and then. A value that is added to a full set
/// replaces all others.
#[derive(Debug)]
pub(crate) struct BoundedSet<T> {
    values: HashSet<T>,
    limit: usize,
}

impl<T: Eq + Hash> BoundedSet<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { values: HashSet::new(), limit }
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        self.values.contains(value)
    }

    /// Adds `value`. Returns true if it was not in the set.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        if self.values.len() >= self.limit && !self.values.contains(&value) {
            self.values.clear();
        }
        self.values.insert(value)
    }

    /// Keeps only the values that `is_kept` accepts.
    pub(crate) fn retain(&mut self, is_kept: impl FnMut(&T) -> bool) {
        self.values.retain(is_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_set_starts_empty() {
        let mut set = BoundedSet::new(2);
        assert!(set.insert(1) && set.insert(2));
        assert!(!set.insert(1), "a known value evicts nothing");
        assert!(set.insert(3));
        assert!(!set.contains(&1) && set.contains(&3));
        assert_eq!(set.values.len(), 1);
    }
}
