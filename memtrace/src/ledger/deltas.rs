//! Deltas of a ledger: the changes of its totals since the previous delta.

use std::time::Duration;

use super::Ledger;
use super::budget::Settings;
use super::deferred_stacks::Deferral;
use super::image::{Image, has_usage};
use super::next_delta::{NextDelta, request};
use crate::model::{Delta, EndedImage, EventClass, ImageId, LossReason, OomKill, Stack, StackId, Tick};

impl Ledger {
    /// Tracks changes for deltas. The ledger must be new.
    #[must_use]
    pub fn with_deltas(mut self) -> Self {
        self.budget.tracks_changes = true;
        self.next_delta = Some(Box::new(NextDelta::new(&self.settings)));
        self
    }

    /// Leaves the stacks of images that start from now on out of deltas, which have the sum of each. Once an image has
    /// existed for `age`, a delta replaces the sum by the stacks. If it ends before, [`EndedImage::unsent`] has them. Only
    /// for ledgers of blocks of any age, without peaks and parts.
    pub fn defer_stacks(&mut self, age: Duration) {
        if let Some(next) = &mut self.next_delta {
            next.deferral.get_or_insert_with(|| Deferral::new(age));
        }
    }

    /// Adds all deferred stacks of running images to the next delta.
    pub fn send_stacks(&mut self) {
        let all = self.next_delta.as_mut().and_then(|next| next.deferral.as_mut()).map(Deferral::take_all);
        self.send_stacks_of(all.unwrap_or_default());
    }

    fn send_stacks_of(&mut self, images: Vec<(usize, ImageId)>) {
        for (slot, id) in images {
            if let Some(process) = self.processes.slot_mut(slot)
                && process.id == id
                && let Some(image) = &mut process.image
            {
                image.send_stacks();
                self.set_changed(slot);
            }
        }
    }

    /// Returns the changes since the previous delta, at the time `until`. Takes time in proportion to their number.
    pub fn take_delta(&mut self, until: Tick) -> Delta {
        let old = self.next_delta.as_mut().and_then(|next| next.deferral.as_mut()).map(|all| all.take_old(until));
        self.send_stacks_of(old.unwrap_or_default());
        let Some(next) = &mut self.next_delta else { return Delta { until, ..Delta::default() } };
        next.last = until;
        (next.images[0], next.stacks[0]) = (0, 0);
        self.budget.epochs.end_delta();
        let mut delta = Delta { until, ..std::mem::take(&mut next.delta) };
        for slot in next.changed.drain(..) {
            if let Some(is_changed) = next.is_changed.get_mut(slot) {
                *is_changed = false;
            }
            let Some(process) = self.processes.slot_mut(slot) else { continue };
            let Some(image) = &mut process.image else { continue };
            if image.takes_frames() {
                delta.stacks.entry(process.id).or_default().merge(process.stacks.clone());
            }
            let changes = image.take_changes();
            for (class, change) in changes {
                delta.add_usage(class, process.id, change);
            }
        }
        delta.losses = self.budget.losses.since(&next.losses);
        next.losses = self.budget.losses.clone();
        // The next event has to mark its process as changed.
        self.last = usize::MAX;
        delta
    }

    /// Starts an epoch at a mark, at which a delta has ended: later blocks belong to it.
    pub fn begin_epoch(&mut self, mark: Tick) {
        self.budget.epochs.begin(mark);
    }

    /// Marks the process of a slot as changed since the last delta.
    #[inline]
    pub(super) fn set_changed(&mut self, slot: usize) {
        let Some(next) = &mut self.next_delta else { return };
        if next.is_changed.len() <= slot {
            next.is_changed.resize(slot + 1, false);
        }
        if !std::mem::replace(&mut next.is_changed[slot], true) {
            next.changed.push(slot);
        }
    }

    /// Adds the end of an image to the next delta.
    pub(super) fn add_end(&mut self, ended: &EndedImage, image: Option<Box<Image>>) {
        let Some(next) = &mut self.next_delta else { return };
        if !request(&mut next.images) {
            self.budget.losses.add(LossReason::ProcessesFull, 1);
            return;
        }
        let &EndedImage { id, end, at, owner, .. } = ended;
        let mut image = image.unwrap_or_default();
        image.end_blocks(&mut self.budget);
        if image.takes_frames() {
            next.delta.stacks.entry(id).or_default().merge(ended.stacks.clone());
        }
        // Deltas have blocks of any age.
        let heap =
            self.settings.older.map(|_| image.heap.usage(Some(end), at, &Settings { older: None, ..self.settings }));
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

    /// Adds the frames of a new stack to the next delta.
    pub(super) fn add_new_stack(&mut self, image: ImageId, id: StackId, stack: &Stack) {
        let Some(next) = &mut self.next_delta else { return };
        if request(&mut next.stacks) {
            next.delta.stacks.entry(image).or_default().insert(id, stack);
        } else {
            self.budget.losses.add(LossReason::StacksFull, 1);
        }
    }

    /// Adds an OOM kill to the next delta.
    pub(super) fn add_new_oom_kill(&mut self, kill: &OomKill) {
        if let Some(next) = &mut self.next_delta {
            next.delta.oom_kills.insert(kill.clone());
        }
    }
}
