//! Images that mapped an allocator before memtrace probed it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::{ImageId, Pid};

/// Maximum number of images in [`LateProbes`]. The late allocators of further images are counted at once, as if the
/// images were in scope.
const MAX_IMAGES: usize = 1 << 16;

/// Allocators that were found during the trace, with the times of their probes, and the images that mapped them before.
///
/// An image is counted when it has ended. Until then, its process can change its name, user and cgroup, so it is not
/// known if the image is in scope.
#[derive(Debug, Default)]
pub(super) struct LateProbes {
    /// Time when the probes were placed, on the monotonic clock, by object handle; `None` before.
    probed: HashMap<PathBuf, Option<Duration>>,
    /// Handles of the objects that an image mapped before the objects had probes, by image.
    images: BTreeMap<ImageId, BTreeSet<PathBuf>>,
    /// Number of late allocators of images beyond [`MAX_IMAGES`].
    beyond: u64,
}

impl LateProbes {
    /// Adds an allocator that has no probes yet, or none in the process that maps it now.
    pub(super) fn add(&mut self, handle: &Path) {
        self.probed.insert(handle.to_owned(), None);
    }

    /// Records that the probes of the allocator were placed at `now`.
    pub(super) fn set_probed(&mut self, handle: &Path, now: Duration) {
        if let Some(since) = self.probed.get_mut(handle) {
            since.get_or_insert(now);
        }
    }

    /// Forgets objects with closed files.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.probed.retain(|handle, _| !closed.contains(handle));
    }

    /// Forgets the images of a process. Nothing else may refer to these images.
    pub(super) fn forget_process(&mut self, pid: Pid) {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        while let Some((&id, _)) = self.images.range(all.clone()).next() {
            self.images.remove(&id);
        }
    }

    /// Records that `image` mapped an object at `time`, if the object has no probes at this time.
    pub(super) fn record_mapping(&mut self, image: ImageId, handle: &Path, time: Duration) {
        if !self.is_late(handle, time) {
            return;
        }
        if self.images.len() < MAX_IMAGES || self.images.contains_key(&image) {
            self.images.entry(image).or_default().insert(handle.to_owned());
        } else {
            self.beyond += 1;
        }
    }

    /// Records that `child`, which was forked at `time`, has the mappings of `parent`.
    pub(super) fn record_fork(&mut self, parent: ImageId, child: ImageId, time: Duration) {
        for handle in self.images.get(&parent).cloned().into_iter().flatten() {
            self.record_mapping(child, &handle, time);
        }
    }

    /// Records that an image that was stopped at its exec runs since `time`. Its mappings count as made at `time`.
    pub(super) fn set_running(&mut self, image: ImageId, time: Duration) {
        let Some(mut handles) = self.images.remove(&image) else { return };
        handles.retain(|handle| self.is_late(handle, time));
        if !handles.is_empty() {
            self.images.insert(image, handles);
        }
    }

    /// Returns the number of allocators that `image` mapped before the allocators had probes, and forgets the image.
    pub(super) fn take(&mut self, image: ImageId) -> u64 {
        self.images.remove(&image).map_or(0, |handles| handles.len() as u64)
    }

    /// Counts the allocators that the remaining images mapped before the allocators had probes. Counts only images that
    /// `is_selected` accepts, and the images beyond [`MAX_IMAGES`].
    pub(super) fn count(&self, is_selected: impl Fn(ImageId) -> bool) -> u64 {
        let selected = self.images.iter().filter(|&(&id, _)| is_selected(id));
        selected.map(|(_, handles)| handles.len() as u64).sum::<u64>() + self.beyond
    }

    fn is_late(&self, handle: &Path, time: Duration) -> bool {
        self.probed.get(handle).is_some_and(|since| since.is_none_or(|since| time < since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: fn(u64) -> Duration = Duration::from_secs;

    fn image(pid: u32, ordinal: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal }
    }

    #[test]
    fn image_that_maps_before_the_probes_is_late_once() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        late.record_mapping(image(1, 0), handle, SECOND(1));
        assert_eq!(late.take(image(1, 0)), 0, "probed since the start");
        late.add(handle);
        late.record_mapping(image(1, 0), handle, SECOND(2));
        late.record_mapping(image(1, 0), handle, SECOND(2));
        late.set_probed(handle, SECOND(5));
        // This mapping event arrives after the probes were placed.
        late.record_mapping(image(2, 0), handle, SECOND(4));
        late.record_mapping(image(3, 0), handle, SECOND(5));
        late.record_mapping(image(4, 0), Path::new("/proc/self/fd/8"), SECOND(1));
        assert_eq!([1, 2, 3, 4].map(|pid| late.take(image(pid, 0))), [1, 1, 0, 0]);
        assert_eq!(late.take(image(1, 0)), 0, "counted before");
    }

    #[test]
    fn image_after_an_exec_is_late_again() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        late.add(handle);
        late.record_mapping(image(1, 0), handle, SECOND(2));
        late.record_mapping(image(1, 1), handle, SECOND(3));
        assert_eq!(late.count(|id| id.ordinal == 1), 1, "the image before the exec is not selected");
        assert_eq!(late.count(|_| true), 2);
        late.forget_process(Pid(1));
        assert_eq!(late.count(|_| true), 0);
    }

    #[test]
    fn child_of_a_late_image_is_late_until_the_probes() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        late.add(handle);
        late.record_mapping(image(1, 0), handle, SECOND(2));
        late.record_fork(image(1, 0), image(2, 0), SECOND(3));
        late.set_probed(handle, SECOND(4));
        late.record_fork(image(1, 0), image(3, 0), SECOND(4));
        assert_eq!([2, 3].map(|pid| late.take(image(pid, 0))), [1, 0]);
    }

    #[test]
    fn stopped_image_is_late_for_allocators_without_probes() {
        let mut late = LateProbes::default();
        let handles = ["/proc/self/fd/7", "/proc/self/fd/8"].map(Path::new);
        for handle in handles {
            late.add(handle);
            late.record_mapping(image(1, 0), handle, SECOND(1));
            late.record_mapping(image(2, 0), handle, SECOND(1));
        }
        late.set_probed(handles[0], SECOND(2));
        late.set_running(image(1, 0), SECOND(2));
        assert_eq!(late.take(image(1, 0)), 1, "the second one has no probes");
        late.set_probed(handles[1], SECOND(3));
        late.set_running(image(2, 0), SECOND(3));
        assert_eq!(late.take(image(2, 0)), 0);
    }

    #[test]
    fn images_beyond_the_bound_are_counted() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        late.add(handle);
        let all = MAX_IMAGES as u32 + 3;
        (0..all).for_each(|pid| late.record_mapping(image(pid, 0), handle, SECOND(1)));
        assert_eq!((late.images.len(), late.count(|_| true)), (MAX_IMAGES, u64::from(all)));
    }
}
