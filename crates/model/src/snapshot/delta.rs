//! Changes of totals within an interval.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::merge_ends;
use crate::{EventClass, ImageEnd, ImageId, ImageUsage, Losses, OomKill, Owner, Stacks, Tick};

/// Changes of a shard's totals since its previous delta, or the sum of several deltas.
///
/// The deltas of all shards together have the additive numbers of the last snapshots. They have no peaks, ages, lists
/// of pages, residency and parents of running images, and the resource usage of images that have ended only. They count
/// live memory of any age, and have the frames of stacks that the ledger has merged since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// No change is later than this.
    pub until: Tick,
    /// True if it ends at a mark: it has all changes before the mark, and later deltas have the others.
    pub is_marked: bool,
    /// Changed images and stacks. Numbers wrap below zero: live numbers if more was freed than allocated, and all numbers
    /// of a stack that was merged into another.
    pub usage: BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>>,
    /// New stacks by the image that they were first seen in. An image can have totals of its parent's stacks.
    pub stacks: BTreeMap<ImageId, Stacks>,
    /// Ends of images, as in a snapshot.
    pub ends: BTreeMap<ImageId, (ImageEnd, Tick)>,
    /// Users and control groups of the images in `ends`, as far as they are known.
    pub owners: BTreeMap<ImageId, Owner>,
    /// OOM kills.
    pub oom_kills: BTreeSet<OomKill>,
    /// Losses.
    pub losses: Losses,
}

impl Delta {
    /// Adds the delta of another shard, or of another interval.
    pub fn merge(&mut self, other: Self) {
        self.until = self.until.max(other.until);
        self.is_marked |= other.is_marked;
        for (class, images) in other.usage {
            for (id, usage) in images {
                self.add_usage(class, id, usage);
            }
        }
        for (id, stacks) in other.stacks {
            self.stacks.entry(id).or_default().merge(stacks);
        }
        merge_ends(&mut self.ends, other.ends);
        self.owners.extend(other.owners);
        self.oom_kills.extend(other.oom_kills);
        self.losses.merge(&other.losses);
    }

    /// Returns the number of changed stacks and of new stacks. They take most of the memory of a delta without histograms.
    pub fn stack_count(&self) -> usize {
        let changed: usize = self.usage.values().flat_map(BTreeMap::values).map(|usage| usage.by_stack.len()).sum();
        let new: usize = self.stacks.values().map(Stacks::len).sum();
        changed + new
    }

    /// Adds changes of one image, which have no stacks without a change. Changes that cancel each other are removed.
    pub fn add_usage(&mut self, class: EventClass, id: ImageId, change: ImageUsage) {
        let images = self.usage.entry(class).or_default();
        match images.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(change);
            }
            Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.merge(change);
                sum.remove_zeros();
                if *sum == ImageUsage::default() {
                    entry.remove();
                }
            }
        }
        if images.is_empty() {
            self.usage.remove(&class);
        }
    }
}
