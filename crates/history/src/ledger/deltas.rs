//! Deltas of a ledger: the changes of its totals since the previous delta.

use std::time::Duration;

use memtrace_model::{
    Delta, EndedImage, EventClass, ImageId, ImageUsage, LossReason, Losses, OomKill, Stack, StackId, Tick,
};

use super::budget::{Budget, Settings};
use super::deferred_stacks::Deferral;
use super::image::{Image, has_usage};
use super::processes::Processes;
use super::sharer::Sharer;

/// Changes that the next delta contains; `None` without deltas.
#[derive(Debug, Default)]
pub(super) struct Deltas(Option<Box<NextDelta>>);

/// Changes that the next delta contains.
#[derive(Debug)]
struct NextDelta {
    /// Slots of the processes with an image that may have changed. The image itself keeps its changes.
    changed: Vec<usize>,
    /// True for the slots in `changed`.
    is_changed: Vec<bool>,
    /// All other changes, such as ended images and new stacks.
    delta: Delta,
    /// Number of ended images in `delta`, and its maximum.
    images: [u32; 2],
    /// Number of stacks in `delta`, and its maximum.
    stacks: [u32; 2],
    /// Losses at the last delta.
    losses: Losses,
    /// End of the last delta.
    last: Tick,
    /// Images with deferred stacks; `None` if none are deferred.
    deferral: Option<Deferral>,
}

impl Deltas {
    /// Starts to track changes.
    pub(super) fn start(&mut self, settings: &Settings) {
        self.0 = Some(Box::new(NextDelta::new(settings)));
    }

    /// Defers the stacks of images that start from now on until the image has existed for `age`.
    pub(super) fn defer_stacks(&mut self, age: Duration) {
        if let Some(next) = &mut self.0 {
            next.deferral.get_or_insert_with(|| Deferral::new(age));
        }
    }

    /// Returns true if the stacks of new images are deferred.
    pub(super) fn defers_stacks(&self) -> bool {
        self.0.as_ref().is_some_and(|next| next.deferral.is_some())
    }

    /// Adds all deferred stacks of running images to the next delta.
    pub(super) fn send_stacks(&mut self, processes: &mut Processes) {
        let all = self.0.as_mut().and_then(|next| next.deferral.as_mut()).map(Deferral::take_all);
        self.send(all.unwrap_or_default(), processes);
    }

    /// Adds the stacks of these images to the next delta. Skips images that have ended.
    fn send(&mut self, images: Vec<(usize, ImageId)>, processes: &mut Processes) {
        for (slot, id) in images {
            if let Some(process) = processes.slot_mut(slot)
                && process.id == id
                && let Some(image) = &mut process.image
            {
                image.send_stacks();
                self.set_changed(slot);
            }
        }
    }

    /// Returns the changes since the previous delta. `until`: end of the delta. Takes time in proportion to the
    /// number of changes.
    pub(super) fn take(&mut self, until: Tick, processes: &mut Processes, budget: &mut Budget) -> Delta {
        let old = self.0.as_mut().and_then(|next| next.deferral.as_mut()).map(|all| all.take_old(until));
        self.send(old.unwrap_or_default(), processes);
        let Some(next) = &mut self.0 else { return Delta { until, ..Delta::default() } };
        next.last = until;
        (next.images[0], next.stacks[0]) = (0, 0);
        budget.epochs.end_delta();
        let mut delta = Delta { until, ..std::mem::take(&mut next.delta) };
        for slot in next.changed.drain(..) {
            if let Some(is_changed) = next.is_changed.get_mut(slot) {
                *is_changed = false;
            }
            let Some(process) = processes.slot_mut(slot) else { continue };
            for (class, entry) in process.sharer.iter_mut().flat_map(Sharer::take_unsent) {
                delta.add_usage(class, process.id, entry);
            }
            let Some(image) = &mut process.image else { continue };
            if image.takes_frames() {
                delta.stacks.entry(process.id).or_default().merge(process.stacks.clone());
            }
            let changes = image.take_changes();
            for (class, change) in changes {
                delta.add_usage(class, process.id, change);
            }
        }
        delta.losses = budget.losses.since(&next.losses);
        next.losses = budget.losses.clone();
        delta
    }

    /// Marks the process of a slot as changed since the last delta.
    #[inline]
    pub(super) fn set_changed(&mut self, slot: usize) {
        let Some(next) = &mut self.0 else { return };
        if next.is_changed.len() <= slot {
            next.is_changed.resize(slot + 1, false);
        }
        if !std::mem::replace(&mut next.is_changed[slot], true) {
            next.changed.push(slot);
        }
    }

    /// Adds a new image of the process in a slot. Defers its stacks, if stacks of new images are deferred.
    pub(super) fn add_image(&mut self, slot: usize, id: ImageId, image: &mut Image) {
        if let Some(next) = &mut self.0
            && let Some(deferral) = &mut next.deferral
        {
            image.defer_stacks();
            deferral.add(slot, id, next.last);
        }
    }

    /// Adds the end of an image to the next delta.
    pub(super) fn add_end(
        &mut self,
        ended: &EndedImage,
        image: Option<Box<Image>>,
        settings: &Settings,
        budget: &mut Budget,
    ) {
        let Some(next) = &mut self.0 else { return };
        if !request(&mut next.images) {
            budget.losses.add(LossReason::ProcessesFull, 1);
            return;
        }
        let &EndedImage { id, end, at, owner, .. } = ended;
        let mut image = image.unwrap_or_default();
        image.end_blocks(budget);
        if image.takes_frames() {
            next.delta.stacks.entry(id).or_default().merge(ended.stacks.clone());
        }
        // The usage of an ended image leaves out young blocks, but deltas have blocks of any age.
        let heap = settings.older.map(|_| image.heap.usage(Some(end), at, &Settings { older: None, ..*settings }));
        for &class in EventClass::ALL {
            let usage = ended.usage.iter().find(|(of, _)| *of == class).map(|(_, usage)| usage);
            let usage = match class {
                EventClass::Heap => heap.as_ref().filter(|heap| has_usage(heap)).or(usage),
                EventClass::Fault | EventClass::Map | EventClass::Reclaim => usage,
            };
            next.replace_totals(id, class, &mut image, usage);
        }
        if ended.is_reported() {
            next.delta.ends.insert(id, (end, at));
            next.delta.owners.extend(owner.map(|owner| (id, owner)));
        }
    }

    /// Adds changes that remove the totals of one class from a running image.
    pub(super) fn remove_totals(&mut self, id: ImageId, class: EventClass, image: &mut Image) {
        if let Some(next) = &mut self.0 {
            next.replace_totals(id, class, image, None);
        }
    }

    /// Adds the frames of a new stack to the next delta.
    pub(super) fn add_stack(&mut self, image: ImageId, id: StackId, stack: &Stack, budget: &mut Budget) {
        let Some(next) = &mut self.0 else { return };
        if request(&mut next.stacks) {
            next.delta.stacks.entry(image).or_default().insert(id, stack);
        } else {
            budget.losses.add(LossReason::StacksFull, 1);
        }
    }

    /// Adds an OOM kill to the next delta.
    pub(super) fn add_oom_kill(&mut self, kill: &OomKill) {
        if let Some(next) = &mut self.0 {
            next.delta.oom_kills.insert(kill.clone());
        }
    }
}

impl NextDelta {
    /// Starts the first delta.
    fn new(settings: &Settings) -> Self {
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

    /// Adds the last changes of one class of an image. `now`: final totals of the class; `None` if the class has no totals.
    fn replace_totals(&mut self, id: ImageId, class: EventClass, image: &mut Image, now: Option<&ImageUsage>) {
        let nothing = ImageUsage::default();
        let mut change = image.take_last_changes(class, now.unwrap_or(&nothing));
        change.counts = now.map(|usage| usage.counts).unwrap_or_default();
        if change != nothing {
            self.delta.add_usage(class, id, change);
        }
    }
}

/// Counts one more item, and returns true. Returns false if the maximum is reached, for example because the
/// receiver of the deltas has stopped.
const fn request([used, max]: &mut [u32; 2]) -> bool {
    let fits = *used < *max;
    *used += fits as u32;
    fits
}
