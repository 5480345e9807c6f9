//! Deferred stacks. Until an image reaches a minimum age, its deltas contain only the sum of its stacks, not each stack.

use std::time::Duration;

use memtrace_model::{Amount, ImageId, Quantities, Tick};
use rustc_hash::FxHashMap;

use super::spreads::StackSpreads;

/// Amounts of an image in earlier deltas, which have only the sum of its stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeferredStacks {
    pub(super) live: Amount,
    pub(super) alloc: Amount,
    pub(super) temporary: Amount,
    /// Number of merged stacks.
    pub(super) merged: u64,
    pub(super) spreads: StackSpreads,
}

impl DeferredStacks {
    /// Replaces the amounts. Returns the changes of the amounts, and of the number of merged stacks.
    pub(super) fn replace(&mut self, now: Self) -> (Quantities, u64) {
        let before = std::mem::replace(self, now);
        let (live, alloc) = (now.live - before.live, now.alloc - before.alloc);
        let temporary = now.temporary - before.temporary;
        let mut spreads = now.spreads;
        spreads.subtract(before.spreads);
        (spreads.in_quantities(Quantities::of_blocks([live, alloc, temporary])), now.merged - before.merged)
    }
}

/// Running images with deferred stacks.
#[derive(Debug)]
pub(super) struct Deferral {
    /// Minimum age of an image before its stacks are sent.
    age: Duration,
    /// Images by the slot of their process. The tick is a time before the first event of the image.
    images: FxHashMap<usize, (ImageId, Tick)>,
}

impl Deferral {
    pub(super) fn new(age: Duration) -> Self {
        Self { age, images: FxHashMap::default() }
    }

    /// Adds a new image, which had no events before `since`.
    pub(super) fn add(&mut self, slot: usize, id: ImageId, since: Tick) {
        self.images.insert(slot, (id, since));
    }

    /// Removes and returns the slots of the images that are old enough at `now`. Some of these images may have ended.
    pub(super) fn take_old(&mut self, now: Tick) -> Vec<(usize, ImageId)> {
        let age = self.age;
        let is_old = |since: Tick| now.since_start().saturating_sub(since.since_start()) >= age;
        let old = self.images.extract_if(|_, (_, since)| is_old(*since));
        old.map(|(slot, (id, _))| (slot, id)).collect()
    }

    /// Removes and returns the slots of all images.
    pub(super) fn take_all(&mut self) -> Vec<(usize, ImageId)> {
        self.images.drain().map(|(slot, (id, _))| (slot, id)).collect()
    }
}
