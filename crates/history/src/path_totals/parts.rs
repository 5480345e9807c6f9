//! Sum of many [`PathTotals`], which is cheap to add to.

use memtrace_model::Node;

use super::{PathKey, PathTotals, PathUsage};

/// Sum of many [`PathTotals`], as several lists, the longest first. Each list is at least twice as long as the next
/// one, so an entry is merged only a few times.
#[derive(Debug, Default)]
pub(crate) struct TotalParts(Vec<PathTotals>);

impl TotalParts {
    /// Adds a list of totals.
    pub(crate) fn push(&mut self, mut stacks: PathTotals) {
        while let Some(last) = self.0.pop_if(|last| last.len() < 2 * stacks.len()) {
            stacks = last.merge(stacks);
        }
        self.0.push(stacks);
    }

    /// Adds the lists of another sum.
    pub(crate) fn append(&mut self, other: Self) {
        other.0.into_iter().for_each(|stacks| self.push(stacks));
    }

    /// Returns the number of entries as [`PathTotals::size`] does. A key can be in several lists.
    pub(crate) fn size(&self) -> usize {
        self.0.iter().map(PathTotals::size).sum()
    }

    /// Iterates over the entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathKey, PathUsage)> + '_ {
        self.0.iter().flat_map(PathTotals::iter)
    }

    /// Replaces each path by the result of `rename`, which must keep the order of the paths.
    pub(crate) fn rename(&mut self, rename: impl Fn(Node) -> Node) {
        self.0.iter_mut().for_each(|stacks| stacks.rename(&rename));
    }

    /// Returns the sum as one list, and empties `self`.
    pub(crate) fn take(&mut self) -> PathTotals {
        self.0.drain(..).rev().reduce(|sum, larger| larger.merge(sum)).unwrap_or_default()
    }
}
