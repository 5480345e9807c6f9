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
    /// Ends of images, and the number of intervals that ended since.
    ending: BTreeMap<ImageId, (Tick, u32)>,
}

impl RecordedImages {
    /// Records the end of an image that leaves the tracker.
    pub(super) fn end(&mut self, id: ImageId, end: ImageEnd, at: Tick, image: Option<&ProcessImage>) {
        self.ending.entry(id).or_insert((at, 0));
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
            if let Some((_, at)) = end {
                self.ending.entry(id).or_insert((at, 0));
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

    /// Counts an interval that ended at `until`. Removes and returns the images that cannot change any more.
    pub(super) fn take_old(&mut self, until: Tick, images: &BTreeMap<ImageId, ProcessImage>) -> Vec<ImageId> {
        let mut old = Vec::new();
        self.ending.retain(|&id, (at, intervals)| {
            // Earlier intervals can be recorded late.
            *intervals += u32::from(*at <= until);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    const ID: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

    fn described(
        images: &mut RecordedImages,
        ends: &[(ImageEnd, Tick)],
        running: bool,
    ) -> Vec<Option<(ImageEnd, Tick)>> {
        let known = running.then(|| (ID, ProcessImage::default())).into_iter().collect();
        let ends = ends.iter().map(|&end| (ID, end)).collect();
        images.describe([ID].into(), &ends, &known).into_iter().map(|image| image.ended).collect()
    }

    #[test]
    fn image_is_described_when_it_is_new_or_ends() {
        let mut images = RecordedImages::default();
        let end = (ImageEnd::Exit, Tick(5));
        assert_eq!(described(&mut images, &[], true), [None]);
        assert_eq!(described(&mut images, &[], true), []);
        assert_eq!(described(&mut images, &[end], true), [Some(end)]);
        // It has left the tracker before its end is recorded.
        let mut images = RecordedImages::default();
        images.end(ID, end.0, end.1, Some(&ProcessImage::default()));
        assert_eq!(described(&mut images, &[end], false), [Some(end)]);
        assert_eq!(described(&mut images, &[end], false), []);
    }

    #[test]
    fn image_is_kept_until_all_shards_have_its_end() {
        let mut images = RecordedImages::default();
        images.end(ID, ImageEnd::Exit, Tick(100), Some(&ProcessImage::default()));
        let none = BTreeMap::new();
        for until in [10, 20, 30, 40, 101, 102] {
            assert_eq!(images.take_old(Tick(until), &none), [], "{until}");
        }
        let tracked = BTreeMap::from([(ID, ProcessImage::default())]);
        assert_eq!(images.take_old(Tick(103), &tracked), []);
        assert_eq!(images.take_old(Tick(104), &none), [ID]);
        assert_eq!(images.take_old(Tick(105), &none), []);
    }
}
