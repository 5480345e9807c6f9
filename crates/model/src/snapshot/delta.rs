//! Changes of totals within an interval.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::merge_ends;
use crate::{EventClass, ImageEnd, ImageId, ImageUsage, Losses, OomKill, Owner, Stacks, Tick};

/// Changes of a shard's totals since its previous delta, or the sum of several deltas.
///
/// The sum of all deltas of all shards has the additive quantities of the last snapshots. Deltas have no peaks and no
/// ages of blocks. For a running image, they have no rusage, no list of pages, no residency and no parent. Deltas count
/// live memory of any age, and contain the frames of stacks that the ledger merges later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// End of the interval. No change is later.
    pub until: Tick,
    /// True if the interval ends at a mark: the delta has all changes before the mark, and later deltas have the
    /// changes after it.
    pub is_marked: bool,
    /// Changes of images and stacks by event class. Negative changes wrap. Live numbers can be negative because of frees,
    /// live and allocated numbers because of the thinning of samples, and all numbers of a stack because it was merged into
    /// another stack.
    pub usage: BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>>,
    /// New stacks, by the first image with the stack. An image can have totals of stacks that are listed under its parent.
    pub stacks: BTreeMap<ImageId, Stacks>,
    /// Ends of images in the interval, as in a snapshot.
    pub ends: BTreeMap<ImageId, (ImageEnd, Tick)>,
    /// Known users and control groups of the images in `ends`.
    pub owners: BTreeMap<ImageId, Owner>,
    /// OOM kills in the interval.
    pub oom_kills: BTreeSet<OomKill>,
    /// Losses in the interval.
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

    /// Returns the number of changed and new stacks, which take most of the memory of a delta without histograms.
    pub fn stack_count(&self) -> usize {
        let changed: usize = self.usage.values().flat_map(BTreeMap::values).map(|usage| usage.by_stack.len()).sum();
        let new: usize = self.stacks.values().map(Stacks::len).sum();
        changed + new
    }

    /// Adds changes of one image. `change` has no stacks without a change. Changes that cancel each other are removed.
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
