//! Totals of an image that has ended, in one shard.

use std::collections::BTreeMap;

use crate::{
    EventClass, ImageEnd, ImageId, ImageUsage, Owner, Quantities, Snapshot, Snapshots, StackId, StackKey, Stacks, Tick,
};

/// Totals and stacks of an image that has ended, in one shard. Every shard has an entry for each end of an image, even
/// if it received no other event of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedImage {
    /// Identity of the image.
    pub id: ImageId,
    /// Kind of end that this shard received. The shards can differ, because the record of an OOM kill can be lost in
    /// one ring.
    pub end: ImageEnd,
    /// Time of the end.
    pub at: Tick,
    /// User and control groups at the end, if they are known. All shards have the same owner.
    pub owner: Option<Owner>,
    /// Totals by event class. Classes without totals have no entry.
    pub usage: Vec<(EventClass, ImageUsage)>,
    /// Frames of the stacks that this shard received. Other shards may have totals of these stacks.
    pub stacks: Stacks,
    /// Heap stacks that the deltas do not contain. The deltas contain the sum of these stacks instead.
    pub unsent: UnsentStacks,
}

/// Heap stacks of an image that the deltas do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnsentStacks {
    /// Deltas have all stacks of the image.
    #[default]
    None,
    /// Deltas have no stack of the image.
    All,
    /// Deltas of some shards have the stacks of the image. The map has the totals of the other shards.
    Some(BTreeMap<StackKey, Quantities>),
}

impl EndedImage {
    /// Adds the totals and stacks of the image in another shard.
    pub fn merge(&mut self, other: Self) {
        self.end = self.end.max(other.end);
        self.at = self.at.min(other.at);
        // All shards have the same owner.
        self.owner = self.owner.or(other.owner);
        self.unsent = self.merge_unsent(&other);
        for (class, theirs) in other.usage {
            match self.usage.iter_mut().find(|(of, _)| *of == class) {
                Some((_, ours)) => ours.merge(theirs),
                None => self.usage.push((class, theirs)),
            }
        }
        self.stacks.merge(other.stacks);
    }

    /// Returns the unsent stacks of both shards. Must be called before the totals of the shards are added.
    fn merge_unsent(&mut self, other: &Self) -> UnsentStacks {
        let ours = std::mem::take(&mut self.unsent);
        let (Some(our_totals), Some(their_totals)) = (self.heap(), other.heap()) else {
            return if self.heap().is_some() { ours } else { other.unsent.clone() };
        };
        let stacks = |unsent: UnsentStacks, totals: &ImageUsage| match unsent {
            UnsentStacks::None => BTreeMap::new(),
            UnsentStacks::All => totals.by_stack.clone(),
            UnsentStacks::Some(stacks) => stacks,
        };
        match (ours, &other.unsent) {
            (UnsentStacks::None, UnsentStacks::None) => UnsentStacks::None,
            (UnsentStacks::All, UnsentStacks::All) => UnsentStacks::All,
            (ours, theirs) => {
                let mut sum = stacks(ours, our_totals);
                for (key, usage) in stacks(theirs.clone(), their_totals) {
                    *sum.entry(key).or_default() += usage;
                }
                UnsentStacks::Some(sum)
            }
        }
    }

    /// Returns the number of totals and of stacks with frames, which take most of the memory of an ended image.
    pub fn stack_count(&self) -> usize {
        let totals: usize = self.usage.iter().map(|(_, usage)| usage.by_stack.len()).sum();
        totals + self.stacks.with_frames()
    }

    /// Returns the totals of heap blocks, if there are any.
    pub fn heap(&self) -> Option<&ImageUsage> {
        self.usage.iter().find(|(class, _)| *class == EventClass::Heap).map(|(_, usage)| usage)
    }

    /// Returns the change that replaces the sum of the unsent stacks with the single stacks; `None` if deltas have all stacks,
    /// or if the image has no heap blocks.
    pub fn unsent_change(&self) -> Option<ImageUsage> {
        let mut by_stack = match &self.unsent {
            UnsentStacks::None => return None,
            UnsentStacks::All => self.heap()?.by_stack.clone(),
            UnsentStacks::Some(by_stack) => by_stack.clone(),
        };
        let sum: Quantities = by_stack.values().copied().sum();
        *by_stack.entry(StackId::OTHER.into()).or_default() -= sum;
        Some(ImageUsage { by_stack, ..ImageUsage::default() })
    }

    /// Returns true if the image is reported. An image without usage is not reported if an exec ended it, as in a child
    /// that calls exec at once.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        !matches!(self.end, ImageEnd::Exec) || !self.usage.is_empty()
    }

    /// Adds the image to `snapshots` if it is reported.
    pub fn add_to(self, snapshots: &mut Snapshots) {
        if !self.is_reported() {
            return;
        }
        let Self { id, end, at, owner, usage, stacks, unsent: _ } = self;
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
