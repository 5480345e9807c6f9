//! Stacks of ended images, summed by group until they are written to the recording.

use memtrace_model::{Node, Part, ProcessImage, Quantities, StackEnd};
use rustc_hash::FxHashMap;

use super::ended::{GroupKey, ImageFacts};
use super::live_paths::ImageStacks;
use super::path_totals::{PathTotals, TotalParts};

/// Maximum number of groups with their own executable. Further images are added to coarser groups.
const MAX_GROUPS: usize = 4096;

/// Totals of a call path in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedStack {
    /// Index of the group, in the order of creation.
    pub group: u32,
    /// Call path; the root if the stack has no frames.
    pub path: Node,
    /// End of the walk.
    pub end: StackEnd,
    /// Part of the process.
    pub part: Part,
    /// Totals of the stack in the group.
    pub usage: Quantities,
}

/// Sums of stacks by group. A group has one executable, cgroup and user, as in reports.
#[derive(Debug, Default)]
pub struct GroupedStacks {
    numbers: FxHashMap<GroupKey, u32>,
    groups: Vec<TotalParts>,
}

impl GroupedStacks {
    /// Adds the stacks of an image. Returns the index of its group, and the names and owner of the group if it is
    /// new.
    pub fn add(&mut self, image: &ProcessImage, stacks: ImageStacks) -> (u32, Option<ProcessImage>) {
        let mut key = GroupKey::of(&ImageFacts::of(image));
        while self.groups.len() >= MAX_GROUPS && key.has_executable() && !self.numbers.contains_key(&key) {
            key = key.coarser();
        }
        let mut new = None;
        let groups = &mut self.groups;
        let number = *self.numbers.entry(key).or_insert_with_key(|key| {
            new = Some(key.image(image));
            groups.push(TotalParts::default());
            // The number of groups is far below 2^32.
            groups.len() as u32 - 1
        });
        if let Some(group) = self.groups.get_mut(number as usize) {
            group.push(stacks.0);
        }
        (number, new)
    }

    /// Returns the number of entries that count in the limit of entries, where an estimate counts as four. A stack of a group
    /// can have several entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.groups.iter().map(TotalParts::size).sum()
    }

    /// Removes and returns the sums. Their memory is freed as they are read.
    pub fn take(&mut self) -> impl Iterator<Item = GroupedStack> + use<> {
        let groups: Vec<PathTotals> = self.groups.iter_mut().map(TotalParts::take).collect();
        (0..).zip(groups).flat_map(|(group, stacks)| {
            stacks.into_iter().map(move |(key, totals)| GroupedStack {
                group,
                path: key.path,
                end: key.end,
                part: key.part,
                usage: totals.usage,
            })
        })
    }
}
