//! Images of a recording.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::model::{ImageEnd, ImageId, ProcessImage, Tick};
use crate::recording::RecordedImage;

/// Intervals after an end in which shards can have changes of the image: each shard has received the end by then.
const LATE_INTERVALS: u32 = 3;

/// Images in the recording.
#[derive(Debug, Default)]
pub(super) struct RecordedImages {
    described: FxHashSet<ImageId>,
    /// Images that have left the tracker, and are not described with their end.
    ended: BTreeMap<ImageId, RecordedImage>,
    /// Number of intervals since the end of each image.
    ending: BTreeMap<ImageId, u32>,
}

impl RecordedImages {
    /// Records the end of an image that leaves the tracker.
    pub(super) fn end(&mut self, id: ImageId, end: ImageEnd, at: Tick, image: Option<&ProcessImage>) {
        self.ending.entry(id).or_insert(0);
        let image = image
            .map_or_else(|| RecordedImage::new(id, &ProcessImage::default()), |image| RecordedImage::new(id, image));
        self.ended.insert(id, RecordedImage { ended: Some((end, at)), ..image });
    }

    /// Returns the images of an interval that are new or have ended. `images` are those in the tracker.
    pub(super) fn describe(
        &mut self,
        changed: BTreeSet<ImageId>,
        ends: &BTreeMap<ImageId, (ImageEnd, Tick)>,
        images: &BTreeMap<ImageId, ProcessImage>,
    ) -> Vec<RecordedImage> {
        let mut described = Vec::new();
        let all: BTreeSet<_> = changed.into_iter().chain(ends.keys().copied()).collect();
        for id in all {
            let end = ends.get(&id).copied();
            if end.is_some() {
                self.ending.entry(id).or_insert(0);
            }
            let is_new = self.described.insert(id);
            let image = match self.ended.remove(&id) {
                Some(ended) => ended,
                None if is_new || end.is_some() => {
                    let Some(image) = images.get(&id) else { continue };
                    let image = RecordedImage::new(id, image);
                    RecordedImage { ended: end.or(image.ended), ..image }
                }
                None => continue,
            };
            described.push(image);
        }
        described
    }

    /// Counts an interval. Removes and returns the images that cannot change any more.
    pub(super) fn take_old(&mut self, images: &BTreeMap<ImageId, ProcessImage>) -> Vec<ImageId> {
        let mut old = Vec::new();
        self.ending.retain(|&id, intervals| {
            *intervals += 1;
            let is_old = *intervals >= LATE_INTERVALS && !images.contains_key(&id);
            if is_old {
                old.push(id);
            }
            !is_old
        });
        for id in &old {
            self.described.remove(id);
            self.ended.remove(id);
        }
        old
    }
}
