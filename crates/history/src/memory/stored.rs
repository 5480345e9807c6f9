//! An interval in memory.

use std::collections::BTreeMap;

use memtrace_model::{EventClass, ImageId};

use super::changes::EncodedChanges;
use crate::interval::Interval;
use crate::merged_images::MergedImages;

/// An interval in memory, without code locations, images and names.
#[derive(Debug, Default)]
pub(super) struct StoredInterval {
    /// Everything except the changes of stacks.
    pub(super) rest: Interval,
    pub(super) changes: EncodedChanges,
    /// Merged images that count in this interval.
    pub(super) merged: BTreeMap<(ImageId, EventClass), MergedImages>,
}

impl StoredInterval {
    pub(super) fn new(mut interval: Interval) -> Self {
        // Views do not show monitored threads, so only recordings in files contain them.
        interval.monitored = Vec::new();
        interval.threads = Vec::new();
        interval.process_usage = Vec::new();
        interval.finished = Vec::new();
        let changes = std::mem::take(&mut interval.changes);
        let changes = EncodedChanges::new(changes, &mut interval.details);
        Self { rest: interval, changes, merged: BTreeMap::new() }
    }

    /// Returns the interval with its changes.
    fn into_interval(self) -> Interval {
        let Self { rest: mut interval, changes, .. } = self;
        let (changes, details) = changes.decode();
        interval.changes = changes;
        interval.details.extend(details);
        interval
    }

    /// Decodes the changes of stacks, calls `change` with the complete interval, and encodes the result.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Interval)) {
        let merged = std::mem::take(&mut self.merged);
        let mut interval = std::mem::take(self).into_interval();
        change(&mut interval);
        *self = Self { merged, ..Self::new(interval) };
    }

    /// Appends the next interval.
    pub(super) fn append(&mut self, mut next: Self) {
        for (key, images) in std::mem::take(&mut next.merged) {
            self.merged.entry(key).or_default().merge(&images);
        }
        self.change(|interval| interval.merge(next.into_interval()));
    }

    /// Returns the approximate memory of the interval in bytes.
    pub(super) fn bytes(&self) -> usize {
        let Interval { details, image_changes, stalls, samples, facts, accounts, oom_kills, activity, .. } = &self.rest;
        let lists = size_of_val(details.as_slice())
            + size_of_val(image_changes.as_slice())
            + size_of_val(stalls.as_slice())
            + size_of_val(samples.as_slice())
            + size_of_val(accounts.as_slice())
            + size_of_val(activity.spans.as_slice())
            + size_of_val(activity.events.as_slice());
        let texts = (facts.len() + oom_kills.len()) * 160;
        let sums = (activity.totals.len() + activity.lock_totals.len() + self.rest.calls.len()) * 96;
        size_of::<Self>() + lists + texts + sums + self.changes.bytes() + self.merged.len() * 128
    }
}
