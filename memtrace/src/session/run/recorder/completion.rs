//! Completion of a recording at the end of a run: names of functions, resident pages, and facts of the run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::changes::add_page_values;
use super::{RecordedFile, Recorder, listed};
use crate::model::{EventClass, ImageId, ImageUsage, ProcessImage, Snapshots};
use crate::recording::{Interval, RecordedImage, Status};
use crate::symbolize::FramesByObject;

impl Recorder {
    /// Records the differences between `snapshots`, which are compared with the page tables, and `before`. If pages are
    /// sampled, their totals are scaled, and recorded ones are not.
    pub(in crate::session::run) fn record_pages(
        &mut self,
        snapshots: &Snapshots,
        before: &Snapshots,
        is_sampled: bool,
    ) {
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

    /// Records the names of calls, and the images of `snapshots`, of which some had no event. Their names and threads may
    /// have changed.
    pub(in crate::session::run) fn add_names(
        &mut self,
        frames: FramesByObject,
        snapshots: &Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
    ) {
        let mut interval = self.last_interval();
        interval.symbols = self.stacks.symbols(frames);
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

    /// Records the facts, and completes the file. Returns its path and state; `None` if the run is not recorded.
    pub(in crate::session::run) fn finish(mut self) -> Option<(PathBuf, Status)> {
        let mut interval = self.last_interval();
        interval.facts = std::mem::take(&mut self.facts);
        interval.image_changes = std::mem::take(&mut self.idle);
        self.push(interval);
        let RecordedFile { path, writer, .. } = self.file?;
        let status = writer.finish();
        self.marks.take_stored(&status);
        Some((path, status))
    }

    /// Returns a further interval at the end. Tracing is over, so it takes no time; but no two boundaries have the same
    /// time.
    pub(super) fn last_interval(&mut self) -> Interval {
        let start = self.end;
        self.end += Duration::from_nanos(1);
        Interval { span: start..self.end, ..Interval::default() }
    }

    pub(super) fn push(&self, interval: Interval) {
        if let Some(file) = &self.file {
            file.writer.push(interval);
        }
    }
}
