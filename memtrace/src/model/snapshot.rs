//! The books at one moment, with raw addresses.

mod image_usage;

pub use image_usage::{ImageUsage, StackUsage};

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{EventClass, ImageId, Losses, OomKill, StackEnd, StackId, Stacks, Usage};

/// The books of some or all shards at one moment. Additive: [`Snapshot::merge`] is associative and commutative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By image: one program run by one process.
    pub images: BTreeMap<ImageId, ImageUsage>,
    /// The frames of every stack that arrived.
    pub stacks: Stacks,
    /// Who was killed for want of memory, followed or not. All shards know of all.
    pub oom_kills: BTreeSet<OomKill>,
    /// What was lost.
    pub losses: Losses,
}

/// The books of all classes of events that were followed, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots(pub BTreeMap<EventClass, Snapshot>);

impl Snapshots {
    /// Adds another shard's books to these.
    pub fn merge(&mut self, other: Self) {
        for (class, theirs) in other.0 {
            self.0.entry(class).or_default().merge(theirs);
        }
    }
}

impl Snapshot {
    /// Adds another shard's books to these.
    pub fn merge(&mut self, other: Self) {
        for (id, theirs) in other.images {
            match self.images.entry(id) {
                Entry::Occupied(entry) => entry.into_mut().merge(theirs),
                Entry::Vacant(entry) => {
                    entry.insert(theirs);
                }
            }
        }
        self.oom_kills.extend(other.oom_kills);
        self.stacks.merge(other.stacks);
        self.losses.merge(&other.losses);
    }

    /// What changed since `earlier`; everything zero is left out, so `diff(a, a)` is empty but for the stacks' frames.
    /// Live numbers wrap below zero where more was freed than allocated in between.
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
        let oom_kills = self.oom_kills.difference(&earlier.oom_kills).cloned().collect();
        Self { images, stacks: self.stacks.clone(), oom_kills, losses: self.losses.since(&earlier.losses) }
    }

    /// All images together.
    #[must_use]
    pub fn total(&self) -> Usage {
        self.images.values().fold(Usage::default(), |mut sum, image| {
            sum += image.total;
            sum
        })
    }

    /// How the walk of stack `id` ended, or why there are no frames.
    #[must_use]
    pub fn end_of(&self, id: StackId) -> StackEnd {
        match self.stacks.find(id) {
            Some((_, end, _)) => end,
            None if id == StackId::NOT_TAKEN => StackEnd::NotTaken,
            None if id == StackId::FAILED => StackEnd::Failed,
            None => StackEnd::FramesLost,
        }
    }
}

#[cfg(test)]
mod tests;
