//! Images with a heap profile of their own: those whose profile is read, and the reasons why others are not traced.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{ImageId, Pid, UntracedReason};

/// State of the own profile of each examined image. It is kept until the image leaves the registry.
#[derive(Debug, Default)]
pub(crate) struct OwnProfiles {
    are_read: bool,
    /// Processes with an image that may be new.
    new: BTreeSet<Pid>,
    states: BTreeMap<ImageId, Result<(), UntracedReason>>,
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
        self.states.insert(id, Ok(()));
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

    /// Returns true if the profile of an image is read, or if a sampler covers it.
    pub(super) fn is_read(&self, id: ImageId) -> bool {
        self.states.get(&id) == Some(&Ok(()))
    }

    /// Returns the number of images whose profile is read.
    pub(crate) fn count(&self) -> usize {
        self.states.values().filter(|state| state.is_ok()).count()
    }

    /// Forgets an image that leaves the registry.
    pub(super) fn remove(&mut self, id: ImageId) {
        self.states.remove(&id);
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
