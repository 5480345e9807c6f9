//! Completion of a recording at the end of a run: names of functions, resident pages, and facts of the run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_history::{Book, ChangesInParts, FramesByObject, Interval, RecordedImage, Recording, Status};
use memtrace_model::{
    BlockHistograms, BlockQuantity, EventClass, ImageId, ImageUsage, ProcessImage, Quantities, Quantity, Snapshots,
    StackKey, Tick,
};

use super::changes::add_page_values;
use super::live_changes::live_changes;
use super::{Recorder, listed};
use crate::trace::account_interval::AccountInterval;

impl Recorder {
    /// Records the changes from `before` to `snapshots`. They result from the comparison with the page tables. Totals
    /// of sampled pages are left out, because `snapshots` has scaled totals and the recording has not.
    pub(in crate::trace) fn record_pages(&mut self, snapshots: &Snapshots, before: &Snapshots, is_sampled: bool) {
        let mut interval = self.last_interval();
        let mut changes: BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>> = BTreeMap::new();
        let none = ImageUsage::default();
        for (&class, before) in &before.0 {
            for (&id, usage) in snapshots.0.get(&class).into_iter().flat_map(|snapshot| &snapshot.images) {
                if usage.ended.is_none() {
                    add_page_values(id, class, usage, &mut interval);
                }
                if !(is_sampled && class.counts_pages()) {
                    let change = usage.diff(before.images.get(&id).unwrap_or(&none));
                    changes.entry(class).or_default().insert(id, change);
                }
            }
        }
        self.changes.add(changes, &self.stacks, &mut interval);
        self.push(interval);
    }

    /// Records the values of images at the end: high-water marks, RSS, ages of blocks, hot and cold bytes. Leaves out images
    /// with a recorded end, because their last changes contain these values.
    pub(in crate::trace) fn record_values_at_end(&mut self, snapshots: &Snapshots) {
        let values_at_end = |(&id, usage): (&ImageId, &ImageUsage)| {
            if self.of_images.known.has_end(id) {
                return None;
            }
            let change = ImageUsage { histograms: ages(usage), ..peak_and_touches(usage) };
            (change != ImageUsage::default()).then_some((id, change))
        };
        let changes: BTreeMap<EventClass, BTreeMap<_, _>> = snapshots
            .0
            .iter()
            .map(|(&class, of)| (class, of.images.iter().filter_map(values_at_end).collect()))
            .collect();
        if changes.values().any(|images| !images.is_empty()) {
            let mut interval = self.last_interval();
            self.changes.add(changes, &self.stacks, &mut interval);
            self.push(interval);
        }
    }

    /// Records the amounts of the blocks that have the minimum age, if the run has one.
    pub(in crate::trace) fn record_old_blocks(&mut self, snapshots: &Snapshots) {
        let heap = snapshots.0.get(&EventClass::Heap);
        let details = heap.map(|heap| self.of_images.old_blocks.finish(&heap.images, &self.stacks)).unwrap_or_default();
        if !details.is_empty() {
            let interval = Interval { details, ..self.last_interval() };
            self.push(interval);
        }
    }

    /// Records accounts that were identified after the last interval, and their final names.
    pub(in crate::trace) fn record_accounts(&mut self, last: AccountInterval) {
        let AccountInterval { accounts, names: account_names, .. } = last;
        let interval = Interval { accounts, account_names, ..self.last_interval() };
        self.push(interval);
    }

    /// Records the names of calls.
    pub(in crate::trace) fn record_names(&mut self, frames: FramesByObject) {
        let interval = Interval { symbols: self.stacks.symbols(frames), ..self.last_interval() };
        self.push(interval);
    }

    /// Records the images of `snapshots`, including images without events. Names and threads may have changed since
    /// they were recorded.
    pub(in crate::trace) fn record_images(&mut self, snapshots: &Snapshots, images: &BTreeMap<ImageId, ProcessImage>) {
        let mut interval = self.last_interval();
        let mut described = BTreeMap::new();
        for (&class, snapshot) in &snapshots.0 {
            for &id in snapshot.images.keys() {
                interval.image_changes.push(listed(id, class));
                if let Some(image) = images.get(&id) {
                    let ended = snapshot.ends.get(&id).copied().or(image.ended);
                    described.entry(id).or_insert_with(|| RecordedImage { ended, ..RecordedImage::new(id, image) });
                }
            }
        }
        interval.images = described.into_values().collect();
        self.push(interval);
    }

    /// Returns the changes of the live memory of running images, after all changes are recorded. `snapshots`: totals at
    /// the end of the trace. `window`: time of the trace. Only the changes of `classes` are returned.
    pub(in crate::trace) fn live_changes(
        &self,
        classes: &[EventClass],
        snapshots: &Snapshots,
        window: &Range<Tick>,
    ) -> ChangesInParts {
        let is_late = |id| self.uses.is_of_trends && self.of_images.known.is_late(id);
        live_changes(&self.book, &self.stacks, classes, snapshots, window, is_late)
    }

    /// Returns the history so far for a view; `None` if the history cannot be read. `recording`: receives the opened
    /// recording if the history is in a file.
    pub(in crate::trace) fn view<'a>(&'a mut self, recording: &'a mut Option<Recording>) -> Option<&'a mut dyn Book> {
        self.book.view(recording)
    }

    /// Records the facts, and completes the history. Returns its file and the final status, if it has a file.
    pub(in crate::trace) fn finish(mut self) -> Option<(PathBuf, Status)> {
        let mut interval = self.last_interval();
        interval.facts = std::mem::take(&mut self.next.facts);
        interval.image_changes = std::mem::take(&mut self.next.image_changes);
        self.push(interval);
        let finished = self.book.finish();
        if let Some((_, status)) = &finished {
            self.waiting.marks.take_stored(status);
        }
        finished
    }

    /// Returns a further interval at the end of the run. Tracing is over, so the interval lasts only one nanosecond. It is not
    /// empty, because two boundaries must not have the same time.
    pub(super) fn last_interval(&mut self) -> Interval {
        let start = self.next.start;
        self.next.start += Duration::from_nanos(1);
        Interval { span: start..self.next.start, ..Interval::default() }
    }

    pub(super) fn push(&mut self, interval: Interval) {
        // Memory over time and trends need only these fields.
        let needed = match self.uses.is_viewed {
            true => interval,
            false => {
                let Interval { span, images, finished, changes, samples, marks, .. } = interval;
                Interval { span, images, finished, changes, samples, marks, ..Interval::default() }
            }
        };
        self.book.push(needed);
    }
}

/// Returns the high-water mark and the RSS of an image, and the quantities of its stacks that are known only at the end: live
/// bytes at the time of the mark, hot bytes and cold bytes.
fn peak_and_touches(usage: &ImageUsage) -> ImageUsage {
    let known = [Quantity::AtPeakBytes, Quantity::HotBytes, Quantity::ColdBytes];
    let values = |stack: &Quantities| known.iter().fold(Quantities::ZERO, |sum, &known| sum.with(known, stack[known]));
    let by_stack = usage.by_stack.iter().map(|(&key, stack)| (key, values(stack)));
    let by_stack = by_stack.filter(|(_, values)| !values.is_zero()).collect();
    ImageUsage { peak: usage.peak, rss: usage.rss, by_stack, ..ImageUsage::default() }
}

/// Returns the ages of the blocks of each stack.
fn ages(usage: &ImageUsage) -> BTreeMap<StackKey, BlockHistograms> {
    let only_ages = |histograms: &BlockHistograms| -> BlockHistograms {
        histograms.of(BlockQuantity::Age).map(|(log2, count)| (BlockQuantity::Age, log2, count)).collect()
    };
    let all = usage.histograms.iter().map(|(&key, histograms)| (key, only_ages(histograms)));
    all.filter(|(_, ages)| !ages.is_empty()).collect()
}
