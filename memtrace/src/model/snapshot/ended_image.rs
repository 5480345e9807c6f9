//! Totals of an image that has ended, in one shard.

use crate::model::{EventClass, ImageEnd, ImageId, ImageUsage, Owner, Snapshot, Snapshots, Stacks, Tick};

/// Totals and stacks of an image that has ended, in one shard. Every shard has one for each end of an image, even if it
/// received no other event of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedImage {
    /// The image.
    pub id: ImageId,
    /// The end that this shard received. The ends of the shards can differ, as those in `Snapshot::ends`.
    pub end: ImageEnd,
    /// Time of the end.
    pub at: Tick,
    /// User and control groups at the end, if they are known. Every shard has the same.
    pub owner: Option<Owner>,
    /// Totals by event class, without classes that have none.
    pub usage: Vec<(EventClass, ImageUsage)>,
    /// Frames of the stacks that this shard received. Other shards may have totals of these stacks.
    pub stacks: Stacks,
}

impl EndedImage {
    /// Adds the part of another shard.
    pub fn merge(&mut self, other: Self) {
        self.end = self.end.max(other.end);
        self.at = self.at.min(other.at);
        // Every shard has the same.
        self.owner = self.owner.or(other.owner);
        for (class, theirs) in other.usage {
            match self.usage.iter_mut().find(|(of, _)| *of == class) {
                Some((_, ours)) => ours.merge(theirs),
                None => self.usage.push((class, theirs)),
            }
        }
        self.stacks.merge(other.stacks);
    }

    /// Returns true if the image is reported. An image without usage that is replaced, as in a child that calls exec at
    /// once, is not.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        !matches!(self.end, ImageEnd::Exec) || !self.usage.is_empty()
    }

    /// Adds the image to `snapshots` if it is reported.
    pub fn add_to(self, snapshots: &mut Snapshots) {
        if !self.is_reported() {
            return;
        }
        let Self { id, end, at, owner, usage, stacks } = self;
        for (class, snapshot) in &mut snapshots.0 {
            let usage = usage.iter().find(|(of, _)| of == class);
            snapshot.merge(Snapshot {
                images: usage.map(|(_, usage)| (id, usage.clone())).into_iter().collect(),
                stacks: stacks.clone(),
                ends: [(id, (end, at))].into(),
                owners: owner.map(|owner| (id, owner)).into_iter().collect(),
                ..Snapshot::default()
            });
        }
    }
}
