//! Changes that the next delta of a ledger contains.

use super::budget::Settings;
use super::deferred_stacks::Deferral;
use super::image::Image;
use crate::model::{Delta, EventClass, ImageId, ImageUsage, Losses, Tick};

/// Changes that the next delta contains.
#[derive(Debug)]
pub(super) struct NextDelta {
    /// Slots of the processes whose running image may have changed. The image has its changes.
    pub(super) changed: Vec<usize>,
    /// True for the slots in `changed`.
    pub(super) is_changed: Vec<bool>,
    /// All other changes.
    pub(super) delta: Delta,
    /// Number of ended images in `delta`, and its maximum.
    pub(super) images: [u32; 2],
    /// Number of stacks in `delta`, and its maximum.
    pub(super) stacks: [u32; 2],
    /// Losses at the last delta.
    pub(super) losses: Losses,
    /// End of the last delta.
    pub(super) last: Tick,
    /// Images with deferred stacks; `None` if none are deferred.
    pub(super) deferral: Option<Deferral>,
}

impl NextDelta {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            changed: Vec::new(),
            is_changed: Vec::new(),
            delta: Delta::default(),
            images: [0, settings.processes],
            stacks: [0, settings.stacks_of_delta()],
            losses: Losses::default(),
            last: Tick::default(),
            deferral: None,
        }
    }

    /// Adds a new image of the process of a slot.
    pub(super) fn add_image(&mut self, slot: usize, id: ImageId, image: &mut Image) {
        if let Some(deferral) = &mut self.deferral {
            image.defer_stacks();
            deferral.add(slot, id, self.last);
        }
    }

    /// Adds the changes of one class of an image, whose totals are `now` and do not change after this. `None` stands for no
    /// totals.
    pub(super) fn replace_totals(
        &mut self,
        id: ImageId,
        class: EventClass,
        image: &mut Image,
        now: Option<&ImageUsage>,
    ) {
        let nothing = ImageUsage::default();
        let mut change = image.take_last_changes(class, now.unwrap_or(&nothing));
        change.counts = now.map(|usage| usage.counts).unwrap_or_default();
        if change != nothing {
            self.delta.add_usage(class, id, change);
        }
    }
}

/// Counts one more, unless the maximum is reached: the receiver of the deltas has stopped.
pub(super) const fn request([used, max]: &mut [u32; 2]) -> bool {
    let fits = *used < *max;
    *used += fits as u32;
    fits
}
