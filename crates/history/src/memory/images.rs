//! The images of a history in memory.

use std::collections::BTreeMap;

use memtrace_model::{ImageId, OomKill, ProcessImage};
use rustc_hash::FxHashSet;

use crate::boundaries::Boundary;
use crate::interval::{Interval, RecordedImage};

/// Approximate memory of an image, in bytes.
const IMAGE: usize = 320;

/// Images, with the first interval of each.
#[derive(Debug, Default)]
pub(super) struct KnownImages {
    pub(super) all: BTreeMap<ImageId, KnownImage>,
    /// Images that will not change any more.
    pub(super) finished: FxHashSet<ImageId>,
    oom_kills: Vec<(i64, OomKill)>,
}

#[derive(Debug)]
pub(super) struct KnownImage {
    /// ID of the first interval with the image.
    pub(super) since: i64,
    pub(super) image: RecordedImage,
}

impl KnownImages {
    /// Moves the images, OOM kills and finished images out of the interval with the ID `id`.
    pub(super) fn add(&mut self, id: i64, interval: &mut Interval) {
        for image in interval.images.drain(..) {
            if let Some(group) = image.member_of {
                self.note(group, id);
            }
            let known = &mut self.note(image.id, id).image;
            let mut thread_names = std::mem::take(&mut known.thread_names);
            thread_names.extend(image.thread_names);
            *known = RecordedImage { member_of: image.member_of.or(known.member_of), thread_names, ..image };
        }
        // An image can have changes before it is described.
        let changed = interval.changes.iter().map(|change| change.key.image);
        let changed = changed.chain(interval.details.iter().map(|detail| detail.key.image));
        let changed = changed.chain(interval.image_changes.iter().map(|change| change.image));
        for image in changed.chain(interval.stalls.iter().map(|stall| stall.image)) {
            self.note(image, id);
        }
        for kill in interval.oom_kills.drain(..) {
            self.oom_kills.push((id, kill));
            self.oom_kills.sort_by_key(|(_, kill)| kill.at);
        }
        // Images without changes are unknown. Without this filter, their IDs would stay for ever.
        let Self { all, finished, .. } = self;
        finished.extend(interval.finished.drain(..).filter(|id| all.contains_key(id)));
    }

    /// Returns an image. A new image is added, with `id` as its first interval.
    pub(super) fn note(&mut self, image: ImageId, id: i64) -> &mut KnownImage {
        let new = || KnownImage { since: id, image: RecordedImage::new(image, &ProcessImage::default()) };
        self.all.entry(image).or_insert_with(new)
    }

    pub(super) fn contains(&self, image: ImageId) -> bool {
        self.all.contains_key(&image)
    }

    /// Returns the images at a boundary.
    pub(super) fn at(&self, at: Boundary) -> BTreeMap<ImageId, RecordedImage> {
        let known = self.all.values().filter(|known| known.since <= at.id);
        let image = |known: &KnownImage| {
            let ended = known.image.ended.filter(|(_, end)| end.since_start() <= at.at);
            (known.image.id, RecordedImage { ended, ..known.image.clone() })
        };
        known.map(image).collect()
    }

    /// Returns true if an image runs at a boundary. A group never runs: all of its members have ended.
    pub(super) fn is_running(&self, image: ImageId, at: Boundary) -> bool {
        let has_ended = |known: &KnownImage| known.image.ended.is_some_and(|(_, end)| end.since_start() <= at.at);
        !image.stands_for_group() && !self.all.get(&image).is_some_and(has_ended)
    }

    /// Returns the OOM kills up to a boundary, in order of time.
    pub(super) fn oom_kills(&self, at: Boundary) -> Vec<OomKill> {
        self.oom_kills.iter().filter(|(id, _)| *id <= at.id).map(|(_, kill)| kill.clone()).collect()
    }

    /// Returns the approximate memory of the images in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.len() * IMAGE + self.oom_kills.len() * size_of::<(i64, OomKill)>()
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    #[test]
    fn finished_images_without_changes_are_not_kept() {
        let [known, unknown] = [0, 1].map(|ordinal| ImageId { pid: Pid(7), ordinal });
        let mut interval = Interval {
            images: vec![RecordedImage::new(known, &ProcessImage::default())],
            finished: vec![known, unknown],
            ..Interval::default()
        };
        let mut images = KnownImages::default();
        images.add(1, &mut interval);
        assert_eq!(images.finished.into_iter().collect::<Vec<_>>(), [known]);
    }
}
