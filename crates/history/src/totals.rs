//! Totals between two boundaries: the sum of the changes.

use std::collections::BTreeMap;

use memtrace_model::{Bytes, EventClass, ImageId, LiveChanges, Losses, PartChange, Quantities, StallKey, StallStats};

use super::boundaries::Boundary;
use super::interval::{DetailKind, ImageValue, TotalKey};

/// Totals between two boundaries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Totals by stack, without stacks that did not change, sorted by key.
    pub stacks: Vec<StackTotal>,
    /// Numbers of images that belong to no stack, by kind and index.
    pub images: ImageValues,
    /// Stalls of images.
    pub stalls: BTreeMap<(ImageId, StallKey), StallStats>,
    /// Losses between the boundaries.
    pub losses: Losses,
}

/// Numbers of images that belong to no stack, by kind and index.
pub type ImageValues = BTreeMap<(ImageId, EventClass), BTreeMap<(ImageValue, u32), u64>>;

/// Totals of one stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackTotal {
    /// The stack.
    pub key: TotalKey,
    /// Totals of the stack.
    pub usage: Quantities,
    /// Numbers that few stacks have, by kind and index.
    pub details: BTreeMap<(DetailKind, u32), u64>,
    /// Changes of live and allocated bytes between each two successive boundaries, if the image runs at the last
    /// boundary. Empty if the totals have two boundaries only.
    pub live_changes: LiveChanges,
}

/// Sums of the changes of one stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) usage: Quantities,
    pub(super) details: BTreeMap<(DetailKind, u32), u64>,
    pub(super) live_changes: LiveChanges,
}

impl Sums {
    pub(super) fn merge(&mut self, other: &Self) {
        self.usage += other.usage;
        for (key, value) in &other.details {
            let ours = self.details.entry(*key).or_default();
            *ours = ours.wrapping_add(*value);
        }
        self.live_changes.merge(&other.live_changes);
    }

    pub(super) fn into_total(mut self, key: TotalKey) -> StackTotal {
        self.details.retain(|_, value| *value != 0);
        StackTotal { key, usage: self.usage, details: self.details, live_changes: self.live_changes }
    }
}

/// Assigns changes to the time ranges between successive boundaries, the parts. Changes arrive sorted by interval.
pub(super) struct Parts<'a> {
    bounds: &'a [Boundary],
    /// Interval of the last change, and the index of its part.
    last: (i64, usize),
}

impl<'a> Parts<'a> {
    pub(super) const fn new(bounds: &'a [Boundary]) -> Self {
        Self { bounds, last: (0, 0) }
    }

    /// Adds a change in `interval` to the part that contains this interval.
    pub(super) fn add(&mut self, interval: i64, live: Bytes, alloc: Bytes, changes: &mut LiveChanges) {
        if live == Bytes(0) && alloc == Bytes(0) {
            return;
        }
        if self.last.0 != interval {
            self.last = (interval, self.bounds.partition_point(|bound| bound.id < interval).saturating_sub(1));
        }
        let change = PartChange { live: live.0.cast_signed(), alloc: alloc.0 };
        changes.add(self.last.1, self.bounds.len() - 1, change);
    }
}
