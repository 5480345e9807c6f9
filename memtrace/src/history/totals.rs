//! Totals between two boundaries: the sum of the changes.

use std::collections::BTreeMap;

use super::interval::{DetailKind, ImageValue, TotalKey};
use crate::model::{EventClass, ImageId, LiveChanges, Losses, Quantities, StallKey, StallStats};

/// Totals between two boundaries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Totals by stack, without those that did not change, in the order of their keys.
    pub stacks: Vec<StackTotal>,
    /// Numbers of images, by kind and index.
    pub images: ImageValues,
    /// Stalls of images.
    pub stalls: BTreeMap<(ImageId, StallKey), StallStats>,
    /// Losses.
    pub losses: Losses,
}

/// Numbers of images, by kind and index.
pub type ImageValues = BTreeMap<(ImageId, EventClass), BTreeMap<(ImageValue, u32), u64>>;

/// Totals of one stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackTotal {
    /// The stack.
    pub key: TotalKey,
    /// The totals.
    pub usage: Quantities,
    /// Numbers that few stacks have, by kind and index.
    pub details: BTreeMap<(DetailKind, u32), u64>,
    /// Changes in each part, if the image runs at the end of the last one. Empty for totals without parts.
    pub live_changes: LiveChanges,
}
