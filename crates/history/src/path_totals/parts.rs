//! Totals by stack to which lists are added.

use memtrace_model::Node;

use super::{PathKey, PathTotals, PathUsage};

/// Sum of lists of totals by stack, in parts: the largest first. Each is at least twice as large as the next, so that an
/// entry is merged a few times only.
#[derive(Debug, Default)]
pub(crate) struct TotalParts(Vec<PathTotals>);

impl TotalParts {
    /// Adds a list.
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

    /// Returns the number of entries. A stack can be in several parts.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(PathTotals::len).sum()
    }

    /// Iterates over the entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathKey, PathUsage)> + '_ {
        self.0.iter().flat_map(PathTotals::iter)
    }

    /// Gives each path the one that `rename` returns. They must be in the same order.
    pub(crate) fn rename(&mut self, rename: impl Fn(Node) -> Node) {
        self.0.iter_mut().for_each(|stacks| stacks.rename(&rename));
    }

    /// Removes and returns the sum.
    pub(crate) fn take(&mut self) -> PathTotals {
        self.0.drain(..).rev().reduce(|sum, larger| larger.merge(sum)).unwrap_or_default()
    }
}
