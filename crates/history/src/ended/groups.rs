//! The groups of an event class.

use memtrace_model::{EventClass, ImageUsage, Magnitude, Magnitudes, Node, ProcessImage, Quantities, Tick};
use rustc_hash::FxHashMap;

use super::group::Group;
use super::group_key::GroupKey;
use super::row::{ImageFacts, Row};
use crate::call_paths::CallPaths;
use crate::merge_smallest::Smallest;
use crate::merged_images::MergedImages;
use crate::path_totals::PathTotals;

/// Groups, by key and by index.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    numbers: FxHashMap<GroupKey, usize>,
    entries: usize,
}

impl Groups {
    /// Adds an image to its group, and returns the index of the group.
    pub(super) fn add(&mut self, row: Row, start: Tick, paths: &mut CallPaths) -> usize {
        let number = self.number(GroupKey::of(&row.facts));
        let group = &mut self.all[number];
        self.entries -= group.entries();
        group.add(row, start, paths);
        self.entries += group.entries();
        number
    }

    /// Adds the stacks of images that were added without their stacks.
    pub(super) fn add_stacks(&mut self, key: GroupKey, stacks: PathTotals) {
        let number = self.number(key);
        let group = &mut self.all[number];
        self.entries -= group.entries();
        group.add_stacks(stacks);
        self.entries += group.entries();
    }

    /// Adds images that are only known by their sums to the group of `image`.
    pub(super) fn add_merged(&mut self, image: &ProcessImage, merged: MergedImages, usage: ImageUsage, start: Tick) {
        let number = self.number(GroupKey::of(&ImageFacts::of(image)));
        self.all[number].add_merged(image, merged, usage, start);
    }

    fn number(&mut self, key: GroupKey) -> usize {
        let all = &mut self.all;
        *self.numbers.entry(key).or_insert_with_key(|key| {
            all.push(Group::new(key.clone()));
            all.len() - 1
        })
    }

    /// Merges the smallest groups if there are more than `most`. Returns the new index of each group; `None` if no
    /// index changes.
    pub(super) fn limit(&mut self, class: EventClass, most: usize) -> Option<Vec<usize>> {
        let most = most.max(1);
        if self.all.len() <= most {
            return None;
        }
        let mut numbers: Vec<usize> = (0..self.all.len()).collect();
        // One pass removes the cgroup of a group, the next pass removes its executable.
        while self.all.len() > most {
            let distinct = (0..self.all.len()).filter(|&number| self.all[number].key.has_executable());
            let mut by_size: Vec<usize> = distinct.collect();
            by_size.sort_by_key(|&number| self.all[number].size(class));
            let mut is_joined = vec![false; self.all.len()];
            by_size[..by_size.len().div_ceil(2)].iter().for_each(|&number| is_joined[number] = true);
            let joined = self.join(&is_joined);
            numbers.iter_mut().for_each(|number| *number = joined[*number]);
        }
        Some(numbers)
    }

    /// Gives the groups with true in `is_joined` a coarser key, and merges groups with equal keys. Returns the new
    /// index of each group.
    fn join(&mut self, is_joined: &[bool]) -> Vec<usize> {
        let all = std::mem::take(self).all;
        let joined = all.into_iter().zip(is_joined).map(|(mut group, &is_joined)| {
            if is_joined {
                group.key = group.key.coarser();
                group.forget_cgroups();
            }
            let number = self.number(group.key.clone());
            self.all[number].merge(group);
            number
        });
        let joined = joined.collect();
        self.entries = self.all.iter().map(Group::entries).sum();
        joined
    }

    /// Returns the size of the entries of all groups in the limit of entries. A stack of a group can have several entries.
    pub(super) const fn entries(&self) -> usize {
        self.entries
    }

    /// Merges the entries of each stack in each group into one entry.
    pub(super) fn merge_parts(&mut self) {
        self.all.iter_mut().for_each(Group::merge_parts);
        self.entries = self.all.iter().map(Group::entries).sum();
    }

    /// Merges the smallest stacks. `rest` receives the number of stacks, and returns the number that shall remain.
    /// Returns false if no stack was merged.
    pub(super) fn merge_stacks(&mut self, class: EventClass, rest: impl FnOnce(usize) -> usize) -> bool {
        self.merge_parts();
        let mut total = Quantities::default();
        self.all.iter().for_each(|group| total += group.usage.total);
        let mut sum = Magnitudes::default();
        sum.add(class, Magnitude::of(class, &total));
        let mut smallest = Smallest::new(sum);
        let magnitudes = self.all.iter().flat_map(|group| group.magnitudes(class));
        magnitudes.for_each(|magnitude| smallest.count(class, magnitude));
        let all = smallest.counted();
        let Some(merged) = all.checked_sub(rest(all)).filter(|merged| *merged > 0) else { return false };
        let mut chosen = smallest.choose(merged);
        self.all.iter_mut().for_each(|group| group.merge_stacks(class, &mut chosen));
        self.entries = self.all.iter().map(Group::entries).sum();
        true
    }

    /// Iterates over the paths of all stacks.
    pub(super) fn paths(&self) -> impl Iterator<Item = Node> + '_ {
        self.all.iter().flat_map(Group::paths)
    }

    /// Replaces each path by the result of `rename`, which must keep the order of the paths.
    pub(super) fn rename(&mut self, rename: impl Fn(Node) -> Node) {
        self.all.iter_mut().for_each(|group| group.rename(&rename));
    }

    /// Iterates over the groups ordered by index.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Group> {
        self.all.into_iter()
    }
}
