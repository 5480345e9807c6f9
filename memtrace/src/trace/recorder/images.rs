//! Descriptions of the images of a recording. An image is described when it is new, and again when it ends.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_history::RecordedImage;
use memtrace_model::{ImageEnd, ImageId, ProcessImage, Tick};
use rustc_hash::FxHashSet;

/// Images in the recording.
#[derive(Debug, Default)]
pub(super) struct RecordedImages {
    described: FxHashSet<ImageId>,
    /// Images that have left the tracker. The recording still lacks their ends.
    ended: BTreeMap<ImageId, RecordedImage>,
    /// Images that have ended, each with a time when its end was known. After an image has left the tracker, no shard has
    /// changes of the image from a later time.
    ending: BTreeMap<ImageId, Tick>,
    /// Images with late changes: deltas had the sum of their stacks first.
    late: FxHashSet<ImageId>,
}

impl RecordedImages {
    /// Records the end of an image that leaves the tracker at `now`. `member_of`: group that has the stacks of the
    /// image.
    pub(super) fn end(
        &mut self,
        id: ImageId,
        ended: (ImageEnd, Tick),
        now: Tick,
        image: Option<&ProcessImage>,
        member_of: Option<ImageId>,
    ) {
        self.ending.insert(id, now);
        let image = image
            .map_or_else(|| RecordedImage::new(id, &ProcessImage::default()), |image| RecordedImage::new(id, image));
        self.ended.insert(id, RecordedImage { ended: Some(ended), member_of, ..image });
    }

    /// Returns the images of an interval up to `until` that are new or have ended. `images`: images in the tracker.
    pub(super) fn describe(
        &mut self,
        changed: BTreeSet<ImageId>,
        ends: &BTreeMap<ImageId, (ImageEnd, Tick)>,
        until: Tick,
        images: &BTreeMap<ImageId, ProcessImage>,
    ) -> Vec<RecordedImage> {
        let mut described = Vec::new();
        // The owner of an image can become known after its end was recorded.
        let completed = self.ended.keys().filter(|id| self.described.contains(id)).copied();
        let all: BTreeSet<_> = changed.into_iter().chain(ends.keys().copied()).chain(completed).collect();
        for id in all {
            let end = ends.get(&id).copied();
            if end.is_some() {
                self.ending.entry(id).or_insert(until);
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

    /// Adds images with late changes: a delta has the sum of their stacks.
    pub(super) fn add_late(&mut self, images: impl IntoIterator<Item = ImageId>) {
        self.late.extend(images);
    }

    /// Returns true if changes of the stacks of an image are late.
    pub(super) fn is_late(&self, id: ImageId) -> bool {
        self.late.contains(&id)
    }

    /// Returns true if the end of an image is recorded.
    pub(super) fn has_end(&self, id: ImageId) -> bool {
        self.ending.contains_key(&id)
    }

    /// Returns the images that have changes and have not ended.
    pub(super) fn running(&self) -> impl Iterator<Item = ImageId> + '_ {
        self.described.iter().copied().filter(|id| !self.ending.contains_key(id))
    }

    /// Removes and returns the images that cannot change any more. `recorded`: the changes of all shards up to this time are
    /// recorded.
    pub(super) fn take_old(&mut self, recorded: Tick, images: &BTreeMap<ImageId, ProcessImage>) -> Vec<ImageId> {
        let mut old = Vec::new();
        self.ending.retain(|&id, known| {
            // From 52 days on, all times have the largest tick.
            let is_old = (*known < recorded || recorded == Tick(u32::MAX)) && !images.contains_key(&id);
            if is_old {
                old.push(id);
            }
            !is_old
        });
        for id in &old {
            self.described.remove(id);
            self.ended.remove(id);
            self.late.remove(id);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    const ID: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

    fn described(
        images: &mut RecordedImages,
        ends: &[(ImageEnd, Tick)],
        running: bool,
    ) -> Vec<Option<(ImageEnd, Tick)>> {
        let known = running.then(|| (ID, ProcessImage::default())).into_iter().collect();
        let ends = ends.iter().map(|&end| (ID, end)).collect();
        images.describe([ID].into(), &ends, Tick(100), &known).into_iter().map(|image| image.ended).collect()
    }

    #[test]
    fn image_is_described_when_it_is_new_or_ends() {
        let mut images = RecordedImages::default();
        let end = (ImageEnd::Exit, Tick(5));
        assert_eq!(described(&mut images, &[], true), [None]);
        assert_eq!(described(&mut images, &[], true), []);
        assert_eq!(described(&mut images, &[end], true), [Some(end)]);
        // The image has left the tracker before its end is recorded.
        let mut images = RecordedImages::default();
        images.end(ID, end, Tick(200), Some(&ProcessImage::default()), None);
        assert_eq!(described(&mut images, &[end], false), [Some(end)]);
        assert_eq!(described(&mut images, &[end], false), []);
    }

    #[test]
    fn image_is_kept_until_all_its_changes_are_recorded() {
        let mut images = RecordedImages::default();
        let end = (ImageEnd::Exit, Tick(100));
        let (tracked, none) = (BTreeMap::from([(ID, ProcessImage::default())]), BTreeMap::new());
        images.describe([ID].into(), &BTreeMap::from([(ID, end)]), Tick(110), &tracked);
        assert_eq!(images.take_old(Tick(150), &tracked), [], "another shard has not received its end");
        images.end(ID, end, Tick(300), tracked.get(&ID), None);
        assert_eq!(images.take_old(Tick(300), &none), []);
        assert_eq!(images.take_old(Tick(301), &none), [ID]);
        assert_eq!(images.take_old(Tick(400), &none), []);
    }

    #[test]
    fn late_images_are_forgotten_when_they_have_ended() {
        let mut images = RecordedImages::default();
        images.add_late([ID]);
        assert!(images.is_late(ID));
        images.end(ID, (ImageEnd::Exit, Tick(100)), Tick(300), None, None);
        assert_eq!(images.take_old(Tick(301), &BTreeMap::new()), [ID]);
        assert!(!images.is_late(ID));
    }
}
