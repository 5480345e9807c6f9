//! Ended images of one event class.

use std::collections::BTreeMap;

use memtrace_model::{EndedRun, EventClass, Merged, Node, Tick};

use super::group::Group;
use super::groups::Groups;
use super::row::{Rank, Row};
use crate::call_paths::CallPaths;

/// Ended images of one event class: the largest images as rows, the others in groups.
#[derive(Debug)]
pub(crate) struct EndedClass {
    class: EventClass,
    start: Tick,
    rows: BTreeMap<Rank, Box<Row>>,
    row_entries: usize,
    /// The largest images in groups, each with the index of its group. The stacks of these images are in the group.
    runs: BTreeMap<Rank, (usize, EndedRun)>,
    pub(super) groups: Groups,
}

/// A group with its listed images, the largest first.
pub(super) type GroupWithRuns = (Group, Vec<EndedRun>);

impl EndedClass {
    pub(super) fn new(class: EventClass, start: Tick) -> Self {
        Self { class, start, rows: BTreeMap::new(), row_entries: 0, runs: BTreeMap::new(), groups: Groups::default() }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.row_entries += row.stacks.size();
        self.rows.insert(Rank::new(self.class, row.id, &row.total()), Box::new(row));
    }

    /// Adds an image to its group, and to the listed images of the group.
    pub(super) fn add_member(&mut self, row: Row, paths: &mut CallPaths) {
        let (rank, run) = (Rank::new(self.class, row.id, &row.total()), row.run(self.start));
        let group = self.groups.add(row, self.start, paths);
        self.runs.insert(rank, (group, run));
    }

    /// Moves the smallest images to their groups and out of the list, until at most `keep` images are listed.
    pub(super) fn limit_images(&mut self, keep: usize, paths: &mut CallPaths) {
        while self.rows.len() + self.runs.len() > keep {
            match (self.rows.first_key_value(), self.runs.first_key_value()) {
                (Some((row, _)), Some((run, _))) if run < row => {
                    self.runs.pop_first();
                }
                (None, _) => {
                    self.runs.pop_first();
                }
                (Some(_), _) => {
                    self.group_smallest(paths);
                }
            }
        }
    }

    /// Moves the stacks of the smallest image to its group. The image stays in the list of its group.
    pub(super) fn move_smallest(&mut self, paths: &mut CallPaths) {
        if let Some((rank, run, group)) = self.group_smallest(paths) {
            self.runs.insert(rank, (group, run));
        }
    }

    fn group_smallest(&mut self, paths: &mut CallPaths) -> Option<(Rank, EndedRun, usize)> {
        let (rank, row) = self.rows.pop_first()?;
        self.row_entries -= row.stacks.size();
        let run = row.run(self.start);
        let group = self.groups.add(*row, self.start, paths);
        Some((rank, run, group))
    }

    /// Merges the smallest groups if there are more than `most`.
    pub(super) fn limit_groups(&mut self, most: usize) {
        if let Some(numbers) = self.groups.limit(self.class, most) {
            self.runs.values_mut().for_each(|(group, _)| *group = numbers[*group]);
        }
    }

    /// Merges the smallest stacks of groups. `rest` receives the number of stacks, and returns the number that
    /// shall remain. Returns false if no stack was merged.
    pub(super) fn merge_stacks(&mut self, rest: impl FnOnce(usize) -> usize) -> bool {
        self.groups.merge_stacks(self.class, rest)
    }

    /// Returns the number of images with a row.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of entries that the stacks of images with a row count as in the limit of entries.
    pub(super) const fn row_entries(&self) -> usize {
        self.row_entries
    }

    /// Iterates over the paths of all stacks.
    pub(super) fn paths(&self) -> impl Iterator<Item = Node> + '_ {
        let of_rows = self.rows.values().flat_map(|row| row.stacks.iter()).map(|(key, _)| key.path);
        of_rows.chain(self.groups.paths())
    }

    /// Replaces each path by its new node.
    pub(super) fn rename(&mut self, paths: &Merged) {
        self.rows.values_mut().for_each(|row| row.stacks.rename(|path| paths.of(path)));
        self.groups.rename(|path| paths.of(path));
    }

    /// Returns the images with a row, ordered by ID, and the groups.
    pub(crate) fn into_parts(self) -> (Vec<Row>, Vec<GroupWithRuns>) {
        let mut rows: Vec<_> = self.rows.into_values().map(|row| *row).collect();
        rows.sort_unstable_by_key(|row| row.id);
        let mut groups: Vec<_> = self.groups.into_iter().map(|group| (group, Vec::new())).collect();
        // In reverse order of rank, so the largest image of a group comes first.
        for (group, run) in self.runs.into_values().rev() {
            groups[group].1.push(run);
        }
        groups.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
        (rows, groups)
    }
}
