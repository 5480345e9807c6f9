//! Mappings that other mappings have replaced.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{AbsAddr, Mapping};

/// Replaced mappings and the times of their replacement. If only some addresses of a mapping are replaced, the entry
/// has these addresses only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Replaced mappings in the order of replacement, each with the time of its replacement since tracing began.
    all: Vec<(Mapping, Duration)>,
    /// Versions by start and end address. Repeated replacements mostly have the same addresses.
    by_range: BTreeMap<(AbsAddr, AbsAddr), Vec<Version>>,
}

/// Index of a replaced mapping, in the order of replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(usize);

impl Replaced {
    /// Adds a mapping that was replaced at the time `until` since tracing began. Times do not decrease: an `until`
    /// before the time of the previous entry is raised to this time.
    pub fn add(&mut self, mapping: Mapping, until: Duration) {
        let until = self.all.last().map_or(until, |&(_, before)| before.max(until));
        let version = Version(self.all.len());
        self.by_range.entry((mapping.start, mapping.end)).or_default().push(version);
        self.all.push((mapping, until));
    }

    /// Returns the number of replaced mappings.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if no mapping was replaced.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the mapping of `address` at the time `at`: the first mapping that was replaced after `at`. `None` if the
    /// current mapping was already valid at that time.
    #[must_use]
    pub fn holding(&self, address: AbsAddr, at: Duration) -> Option<Version> {
        let begun = self.by_range.range(..=(address, AbsAddr(u64::MAX)));
        let around = begun.filter(|((_, end), _)| address < *end).map(|(_, versions)| versions);
        let first = around.filter_map(|versions| {
            let still = versions.partition_point(|version| self.until(*version).is_some_and(|until| until <= at));
            versions.get(still).copied()
        });
        first.min()
    }

    /// Returns a replaced mapping.
    #[must_use]
    pub fn get(&self, version: Version) -> Option<&Mapping> {
        self.all.get(version.0).map(|(mapping, _)| mapping)
    }

    fn until(&self, version: Version) -> Option<Duration> {
        self.all.get(version.0).map(|&(_, until)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileOffset;

    fn mapping(start: u64, end: u64, offset: u64) -> Mapping {
        Mapping { start: AbsAddr(start), end: AbsAddr(end), offset: FileOffset(offset), object: None }
    }

    fn replaced(mappings: &[(u64, u64, u64)]) -> Replaced {
        let mut replaced = Replaced::default();
        for (number, &(start, end, until)) in mappings.iter().enumerate() {
            replaced.add(mapping(start, end, number as u64), Duration::from_nanos(until));
        }
        replaced
    }

    fn held(replaced: &Replaced, address: u64, at: u64) -> Option<u64> {
        let version = replaced.holding(AbsAddr(address), Duration::from_nanos(at))?;
        replaced.get(version).map(|mapping| mapping.offset.0)
    }

    #[test]
    fn the_first_later_replacement_was_valid_before() {
        let replaced = replaced(&[(10, 20, 5), (10, 20, 8), (15, 30, 9)]);
        assert_eq!([4, 5, 7, 8, 9].map(|at| held(&replaced, 15, at)), [Some(0), Some(1), Some(1), Some(2), None]);
        assert_eq!([4, 5, 7, 8, 9].map(|at| held(&replaced, 25, at)), [Some(2), Some(2), Some(2), Some(2), None]);
        assert_eq!(
            [9, 10, 19, 20, 29, 30].map(|address| held(&replaced, address, 0)),
            [None, Some(0), Some(0), Some(2), Some(2), None]
        );
    }

    #[test]
    fn the_first_of_simultaneous_replacements_was_valid() {
        let replaced = replaced(&[(15, 30, 5), (10, 20, 5), (15, 30, 5)]);
        assert_eq!([4, 5].map(|at| held(&replaced, 15, at)), [Some(0), None]);
    }

    #[test]
    fn time_does_not_go_back() {
        let replaced = replaced(&[(10, 20, 5), (10, 20, 3)]);
        assert_eq!([2, 4, 5].map(|at| held(&replaced, 10, at)), [Some(0), Some(0), None]);
        assert_eq!(replaced.len(), 2);
    }
}
