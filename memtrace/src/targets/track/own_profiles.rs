//! Images with a heap profile or samples of their own, the reasons why other profiles are not read, and patched images.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{ImageId, Pid, UntracedReason};

/// State of the own profile of each examined image. It is kept until the image leaves the registry.
#[derive(Debug, Default)]
pub(crate) struct OwnProfiles {
    are_read: bool,
    /// Processes with an image that may be new.
    new: BTreeSet<Pid>,
    states: BTreeMap<ImageId, Result<(), UntracedReason>>,
    /// Images whose allocator is patched.
    patched: BTreeSet<ImageId>,
    /// True if the page faults of images with sampled blocks are left out.
    leaves_out_pages: bool,
    /// Images that may have got samples of their blocks since the last call of [`Self::take_sampled`]. Empty unless their page
    /// faults are left out.
    newly_sampled: Vec<ImageId>,
    /// Patched images whose allocator was called for the first time since the last call of [`Self::take_called`].
    called: BTreeSet<ImageId>,
}

impl OwnProfiles {
    /// Records that this trace reads the profiles that targets keep.
    pub(crate) const fn enable(&mut self) {
        self.are_read = true;
    }

    /// Returns true if this trace reads the profiles that targets keep.
    pub(crate) const fn are_read(&self) -> bool {
        self.are_read
    }

    /// Adds a process that has a new image, or may have one.
    pub(super) fn add_new(&mut self, pid: Pid) {
        if self.are_read {
            self.new.insert(pid);
        }
    }

    /// Removes and returns the processes that may have a new image since the last call.
    pub(crate) fn take_new(&mut self) -> BTreeSet<Pid> {
        std::mem::take(&mut self.new)
    }

    /// Records that the profile of an image is read, or that a sampler covers the image.
    pub(crate) fn set_read(&mut self, id: ImageId) {
        if self.states.insert(id, Ok(())) != Some(Ok(())) {
            self.add_sampled(id);
        }
    }

    /// Records why the profile of an image is not read. Has no effect if it was read before.
    pub(crate) fn set_unread(&mut self, id: ImageId, reason: UntracedReason) {
        let state = self.states.entry(id).or_insert(Err(reason));
        if let Err(known) = state {
            *known = reason;
        }
    }

    /// Returns the reason why the image `id` of a Go program is not traced; `None` if its profile is read.
    pub(super) fn obstacle(&self, id: ImageId) -> Option<UntracedReason> {
        match self.states.get(&id) {
            Some(Ok(())) => None,
            Some(Err(reason)) => Some(*reason),
            None if self.are_read => Some(UntracedReason::GoUnreadable),
            None => Some(UntracedReason::Go),
        }
    }

    /// Records that the allocator of an image is patched, and takes samples.
    pub(crate) fn set_patched(&mut self, id: ImageId) {
        if self.patched.insert(id) {
            self.add_sampled(id);
        }
    }

    /// Records that the allocator of a patched image was called for the first time. By now, the allocator has read its options.
    pub(crate) fn add_called(&mut self, id: ImageId) {
        if self.are_read {
            self.called.insert(id);
        }
    }

    /// Removes and returns the patched images whose allocator was called for the first time since the last call.
    pub(crate) fn take_called(&mut self) -> BTreeSet<ImageId> {
        std::mem::take(&mut self.called)
    }

    /// Records that this trace samples page faults, except page faults of images whose blocks are sampled.
    pub(crate) fn leave_out_pages(&mut self) {
        self.leaves_out_pages = true;
        let read = self.states.iter().filter(|(_, state)| state.is_ok()).map(|(id, _)| *id);
        self.newly_sampled.extend(read.chain(self.patched.iter().copied()));
    }

    /// Returns true if the page faults of an image are left out, because its blocks are sampled.
    pub(crate) fn pages_are_left_out(&self, id: ImageId) -> bool {
        self.leaves_out_pages && self.is_sampled(id)
    }

    /// Removes and returns the images that may have got samples of their blocks since the last call, if their page faults are left
    /// out. An image can be returned twice, or after its end.
    pub(crate) fn take_sampled(&mut self) -> Vec<ImageId> {
        std::mem::take(&mut self.newly_sampled)
    }

    fn add_sampled(&mut self, id: ImageId) {
        if self.leaves_out_pages {
            self.newly_sampled.push(id);
        }
    }

    /// Returns true if the allocator of an image is patched.
    pub(crate) fn is_patched(&self, id: ImageId) -> bool {
        self.patched.contains(&id)
    }

    /// Returns true if the blocks of an image are sampled: by its own profile or sampler, or by a patched allocator.
    pub(super) fn is_sampled(&self, id: ImageId) -> bool {
        self.is_read(id) || self.is_patched(id)
    }

    /// Returns true if the profile of an image is read, or if a sampler covers it.
    pub(crate) fn is_read(&self, id: ImageId) -> bool {
        self.states.get(&id) == Some(&Ok(()))
    }

    /// Returns the number of images whose profile is read.
    pub(crate) fn count(&self) -> usize {
        self.states.values().filter(|state| state.is_ok()).count()
    }

    /// Returns the number of patched images.
    pub(crate) fn patched(&self) -> usize {
        self.patched.len()
    }

    /// Forgets an image that leaves the registry.
    pub(super) fn remove(&mut self, id: ImageId) {
        self.states.remove(&id);
        self.patched.remove(&id);
        self.called.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ordinal: u32) -> ImageId {
        ImageId { pid: Pid(7), ordinal }
    }

    #[test]
    fn image_is_untraced_until_its_profile_is_read() {
        let mut profiles = OwnProfiles::default();
        assert_eq!(profiles.obstacle(id(0)), Some(UntracedReason::Go));
        profiles.enable();
        assert_eq!(profiles.obstacle(id(0)), Some(UntracedReason::GoUnreadable));
        profiles.set_unread(id(0), UntracedReason::GoUnreadable);
        profiles.set_unread(id(0), UntracedReason::GoVersion);
        profiles.set_read(id(1));
        // A later reading failed, but the reading before stands.
        profiles.set_unread(id(1), UntracedReason::GoUnreadable);
        assert_eq!([0, 1].map(|ordinal| profiles.obstacle(id(ordinal))), [Some(UntracedReason::GoVersion), None]);
        assert_eq!(([0, 1].map(|ordinal| profiles.is_read(id(ordinal))), profiles.count()), ([false, true], 1));
        profiles.remove(id(1));
        assert_eq!((profiles.obstacle(id(1)), profiles.count()), (Some(UntracedReason::GoUnreadable), 0));
    }

    #[test]
    fn patched_image_has_no_profile() {
        let mut profiles = OwnProfiles::default();
        profiles.set_read(id(0));
        profiles.set_patched(id(1));
        assert_eq!([0, 1, 2].map(|ordinal| profiles.is_sampled(id(ordinal))), [true, true, false]);
        assert_eq!((profiles.is_read(id(1)), profiles.count(), profiles.patched()), (false, 1, 1));
        profiles.remove(id(1));
        assert_eq!((profiles.is_sampled(id(1)), profiles.patched()), (false, 0));
    }

    #[test]
    fn called_images_are_taken_once_if_profiles_are_read() {
        let mut profiles = OwnProfiles::default();
        profiles.add_called(id(0));
        assert!(profiles.take_called().is_empty());
        profiles.enable();
        [0, 1, 0, 2].map(id).into_iter().for_each(|id| profiles.add_called(id));
        profiles.remove(id(2));
        assert_eq!(profiles.take_called(), BTreeSet::from([id(0), id(1)]));
        assert!(profiles.take_called().is_empty());
    }

    #[test]
    fn sampled_images_are_taken_if_their_pages_are_left_out() {
        let mut profiles = OwnProfiles::default();
        profiles.set_read(id(0));
        profiles.set_unread(id(1), UntracedReason::GoVersion);
        profiles.set_patched(id(2));
        assert!(profiles.take_sampled().is_empty() && !profiles.leaves_out_pages);
        profiles.leave_out_pages();
        assert!(profiles.leaves_out_pages);
        assert_eq!(profiles.take_sampled(), [id(0), id(2)]);
        profiles.set_read(id(0));
        profiles.set_patched(id(2));
        assert!(profiles.take_sampled().is_empty());
        profiles.set_read(id(1));
        profiles.set_patched(id(3));
        assert_eq!(profiles.take_sampled(), [id(1), id(3)]);
    }

    #[test]
    fn new_images_are_listed_once_if_profiles_are_read() {
        let mut profiles = OwnProfiles::default();
        profiles.add_new(Pid(7));
        assert!(profiles.take_new().is_empty());
        profiles.enable();
        [7, 9, 7].map(Pid).into_iter().for_each(|pid| profiles.add_new(pid));
        assert_eq!(profiles.take_new().into_iter().collect::<Vec<_>>(), [Pid(7), Pid(9)]);
        assert!(profiles.take_new().is_empty());
    }
}
