//! Totals at one moment, with raw addresses.

mod delta;
mod ended_image;
mod epoch;
mod image_usage;

pub use delta::Delta;
pub use ended_image::{EndedImage, UnsentStacks};
pub use epoch::Epoch;
pub use image_usage::ImageUsage;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{EventClass, ImageEnd, ImageId, Losses, OomKill, Owner, Quantities, Stacks, Tick};

/// Totals of some or all shards at one moment. [`Snapshot::merge`] is associative and commutative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Totals by process image.
    pub images: BTreeMap<ImageId, ImageUsage>,
    /// Frames of every stack that arrived.
    pub stacks: Stacks,
    /// Kinds and times of the ends of images. If an exec ended an image, the image is listed only if it has totals.
    pub ends: BTreeMap<ImageId, (ImageEnd, Tick)>,
    /// Known users and control groups of the images in `ends`. Every shard has all owners.
    pub owners: BTreeMap<ImageId, Owner>,
    /// OOM kills of traced and untraced processes. Every shard has all OOM kills.
    pub oom_kills: BTreeSet<OomKill>,
    /// Losses of the shards.
    pub losses: Losses,
}

/// Totals of all traced event classes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots(pub BTreeMap<EventClass, Snapshot>);

impl Snapshots {
    /// Returns the owners of the images that have ended. All classes have the same owners.
    #[must_use]
    pub fn owners(&self) -> BTreeMap<ImageId, Owner> {
        let owners = self.0.values().map(|snapshot| &snapshot.owners).max_by_key(|owners| owners.len());
        owners.cloned().unwrap_or_default()
    }

    /// Adds the totals of another shard.
    pub fn merge(&mut self, other: Self) {
        for (class, theirs) in other.0 {
            self.0.entry(class).or_default().merge(theirs);
        }
    }
}

impl Snapshot {
    /// Adds the totals of another shard.
    pub fn merge(&mut self, other: Self) {
        for (id, theirs) in other.images {
            match self.images.entry(id) {
                Entry::Occupied(entry) => entry.into_mut().merge(theirs),
                Entry::Vacant(entry) => {
                    entry.insert(theirs);
                }
            }
        }
        merge_ends(&mut self.ends, other.ends);
        self.owners.extend(other.owners);
        self.oom_kills.extend(other.oom_kills);
        self.stacks.merge(other.stacks);
        self.losses.merge(&other.losses);
    }

    /// Returns the changes since `earlier`, without zeros: `diff(a, a)` has only the frames of stacks. If more was
    /// freed than allocated since `earlier`, live numbers wrap.
    #[must_use]
    pub fn diff(&self, earlier: &Self) -> Self {
        let mut images = BTreeMap::new();
        for (&id, now) in &self.images {
            let change = match earlier.images.get(&id) {
                Some(then) => now.diff(then),
                None => now.clone(),
            };
            if !change.is_zero() {
                images.insert(id, change);
            }
        }
        let is_new = |id: &ImageId| !earlier.ends.contains_key(id);
        let ends = self.ends.iter().filter(|(id, _)| is_new(id)).map(|(&id, &end)| (id, end)).collect();
        let owners = self.owners.iter().filter(|(id, _)| is_new(id)).map(|(&id, &owner)| (id, owner)).collect();
        let oom_kills = self.oom_kills.difference(&earlier.oom_kills).cloned().collect();
        Self {
            images,
            stacks: self.stacks.clone(),
            ends,
            owners,
            oom_kills,
            losses: self.losses.since(&earlier.losses),
        }
    }

    /// Ends all images in `ends`, because a shard with a full ring may have missed the end of an image. `class` is the class of
    /// the snapshot.
    pub fn end_images(&mut self, class: EventClass) {
        for (id, &(end, _)) in &self.ends {
            if let Some(image) = self.images.get_mut(id) {
                image.end(end, class);
            }
        }
    }

    /// Returns the sum of all images.
    #[must_use]
    pub fn total(&self) -> Quantities {
        self.images.values().map(|image| image.total).sum()
    }
}

/// Adds the ends that another shard has received.
fn merge_ends(ours: &mut BTreeMap<ImageId, (ImageEnd, Tick)>, theirs: BTreeMap<ImageId, (ImageEnd, Tick)>) {
    for (id, (end, at)) in theirs {
        let ours = ours.entry(id).or_insert((end, at));
        // The record of an OOM kill can be lost in one ring, and the rings get their records at slightly different
        // times.
        *ours = (ours.0.max(end), ours.1.min(at));
    }
}

#[cfg(test)]
mod tests;
