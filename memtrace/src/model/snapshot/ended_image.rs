//! Totals of an image that has ended, in one shard.

use crate::model::{EventClass, ImageEnd, ImageId, ImageUsage, Owner, Stacks, Tick};

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
