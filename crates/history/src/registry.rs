//! Registry of process images and their mappings over time, built from [`ProcessEvent`]s. Pure.
//!
//! An image stays after its end until it is taken out together with its totals. The mappings of an image are never
//! removed: the kernel does not report munmap(2), and a stack may have been recorded while the code was mapped. For the
//! same reason a replaced mapping stays, with the time of its replacement.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, Cgroup, FileOffset, ImageEnd, ImageId, ImageStart, LossReason, Losses, Mapping, Pid, ProcessEvent,
    ProcessEventKind, ProcessImage, Tick, Tid, User,
};

use crate::ordinals::Ordinals;

/// Limits of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of images that run, or were not taken out yet.
    pub images: usize,
    /// Maximum number of mappings of all images, including replaced mappings.
    pub mappings: usize,
    /// Maximum number of thread names of all images. Further threads are shown by their tid.
    pub thread_names: usize,
}

impl Default for Limits {
    /// Some 80 MB of images, 80 MB of mappings and 8 MB of thread names.
    fn default() -> Self {
        Self { images: 1 << 17, mappings: 1 << 20, thread_names: 1 << 17 }
    }
}

/// Maximum time from the exit of the first thread of a process to the exec of another thread. After a longer time, the exec
/// belongs to another process with the pid, and the record of its fork was lost.
const EXEC: Duration = Duration::from_millis(100);

/// Process images with their mappings.
#[derive(Clone, Debug)]
pub struct Registry {
    images: BTreeMap<ImageId, ProcessImage>,
    /// Ordinal of the image that each pid runs now. It is kept after the removal of an image, so that the next
    /// image of the pid gets another id.
    ordinals: Ordinals,
    losses: Losses,
    limits: Limits,
    mappings: usize,
    thread_names: usize,
}

impl Registry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            images: BTreeMap::new(),
            ordinals: Ordinals::default(),
            losses: Losses::default(),
            limits,
            mappings: 0,
            thread_names: 0,
        }
    }

    /// Applies an event. An image or mapping beyond the limits is counted as [`LossReason::MappingsLost`].
    pub fn apply(&mut self, event: ProcessEvent) {
        let ProcessEvent { pid, kind } = event;
        match kind {
            ProcessEventKind::Seen { image, at } => {
                let id = self.current(pid);
                self.record_image(id, image, at);
            }
            ProcessEventKind::Forked { parent, at } => {
                let parents = self.latest_image(parent).map(|(_, image)| image.clone()).unwrap_or_default();
                let id = self.current(pid);
                let (user, cgroup) = (parents.user.clone(), parents.cgroup.clone());
                self.record_image(
                    id,
                    ProcessImage { user: None, cgroup: None, threads: None, thread_names: BTreeMap::new(), ..parents },
                    at.since_start(),
                );
                self.with_image(id, |image| {
                    // Metadata read from the child itself are newer than the parent's.
                    image.user = image.user.take().or(user);
                    image.cgroup = image.cgroup.take().or(cgroup);
                    image.start = ImageStart::Fork(at);
                });
            }
            ProcessEventKind::Mapped { mapping, at } => {
                let id = self.current(pid);
                self.insert(id, mapping, at);
            }
            ProcessEventKind::Exec { comm, at } => {
                let (before, id) = self.images_of_exec(pid, at);
                let before = self.images.get_mut(&before).map(|image| {
                    image.ended = Some((ImageEnd::Exec, at));
                    (image.user.clone(), image.cgroup.clone())
                });
                let (user, cgroup) = before.unwrap_or_default();
                self.with_image(id, |image| {
                    image.comm = comm.into();
                    image.user = user;
                    image.cgroup = cgroup;
                    image.start = ImageStart::Exec(at);
                });
            }
            ProcessEventKind::Comm { comm } => {
                let id = self.current(pid);
                self.with_image(id, |image| image.comm = comm.into());
            }
            ProcessEventKind::Exe { exe } => {
                let id = self.current(pid);
                self.with_image(id, |image| image.exe = Some(exe));
            }
            ProcessEventKind::Belongs { user, cgroup, threads } => {
                let id = self.current(pid);
                self.with_image(id, |image| update_metadata(image, user, cgroup, threads));
            }
            ProcessEventKind::ThreadStarted { tid, creator } => {
                let id = self.current(pid);
                let name = self.images.get(&id).and_then(|image| match image.thread_names.get(&creator) {
                    None if creator.0 == pid.0 => Some(image.comm.raw().to_owned()),
                    name => name.cloned(),
                });
                self.name_threads(id, name.map(|name| (tid, name)));
            }
            ProcessEventKind::Thread { tid, name } => {
                let id = self.current(pid);
                self.name_threads(id, [(tid, name)]);
            }
            ProcessEventKind::Exited { at } => {
                self.end(pid, ImageEnd::Exit, at);
                // The ordinal advances even if the pid has no image, because the ledgers count each exit.
                self.ordinals.set(pid, self.next(pid).ordinal);
            }
        }
    }

    /// Sets the user of an image, and its cgroup if `cgroup` is known.
    pub fn set_owner(&mut self, id: ImageId, user: User, cgroup: Option<Arc<Cgroup>>) {
        if let Some(image) = self.images.get_mut(&id) {
            update_metadata(image, Some(user), cgroup, None);
        }
    }

    /// Returns true if the image is known and its end was not reported.
    #[must_use]
    pub fn runs(&self, id: ImageId) -> bool {
        self.images.get(&id).is_some_and(|image| image.ended.is_none()) && id == self.current(id.pid)
    }

    /// Removes an image that has ended, and returns it; `None` if the image is unknown or its end was not reported yet.
    pub fn take(&mut self, id: ImageId) -> Option<ProcessImage> {
        let has_ended = self.images.get(&id)?.ended.is_some() || id.ordinal < self.current(id.pid).ordinal;
        has_ended.then(|| self.remove(id)).flatten()
    }

    /// Removes all images of `pid`. No totals may refer to these images.
    pub fn forget(&mut self, pid: Pid) {
        self.ordinals.set(pid, 0);
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        let ids: Vec<_> = self.images.range(all).map(|(&id, _)| id).collect();
        for id in ids {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ImageId) -> Option<ProcessImage> {
        let image = self.images.remove(&id)?;
        self.mappings -= mapping_count(&image);
        self.thread_names -= image.thread_names.len();
        Some(image)
    }

    /// Returns all images.
    #[must_use]
    pub const fn images(&self) -> &BTreeMap<ImageId, ProcessImage> {
        &self.images
    }

    /// Returns the losses: images and mappings beyond the limits, and empty mappings.
    #[must_use]
    pub const fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns true if the registry has no later image of the same pid.
    #[must_use]
    pub fn is_latest(&self, id: ImageId) -> bool {
        self.latest_image(id.pid).is_none_or(|(latest, _)| latest.ordinal <= id.ordinal)
    }

    fn latest_image(&self, pid: Pid) -> Option<(ImageId, &ProcessImage)> {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        self.images.range(all).next_back().map(|(&id, image)| (id, image))
    }

    /// Returns the id of the image that `pid` runs now. After an exit, this is the id of a new image.
    pub fn current(&self, pid: Pid) -> ImageId {
        self.ordinals.current(pid)
    }

    /// Returns the ids of the images of `pid` before and after an exec.
    fn images_of_exec(&self, pid: Pid, at: Tick) -> (ImageId, ImageId) {
        let current = self.current(pid);
        // If a thread other than the first one calls exec, the first thread exits just before (`de_thread`, fs/exec.c).
        let last = ImageId { ordinal: current.ordinal.saturating_sub(1), ..current };
        let has_exited = |image: &ProcessImage| match image.ended {
            Some((ImageEnd::Exit, exit)) => at.since_start().saturating_sub(exit.since_start()) < EXEC,
            _ => false,
        };
        let continues = !self.images.contains_key(&current) && self.images.get(&last).is_some_and(has_exited);
        if continues { (last, current) } else { (current, self.next(pid)) }
    }

    /// Returns the id of the image after the current one of `pid`. Its ordinal is at least 1: the process ran an
    /// image before, even if the registry does not have it.
    fn next(&self, pid: Pid) -> ImageId {
        let current = self.current(pid);
        ImageId { ordinal: current.ordinal.saturating_add(1), ..current }
    }

    fn end(&mut self, pid: Pid, end: ImageEnd, at: Tick) {
        let id = self.current(pid);
        if let Some(image) = self.images.get_mut(&id) {
            image.ended = Some((end, at));
        }
    }

    /// Changes an image. Adds the image if it is new; if there is no room for the image, counts a loss.
    fn with_image(&mut self, id: ImageId, change: impl FnOnce(&mut ProcessImage)) {
        let room = self.images.len() < self.limits.images;
        // The ordinal is set even if there is no room: further events belong to the new image and must not change
        // the old one.
        self.ordinals.set(id.pid, id.ordinal);
        match self.images.entry(id) {
            Entry::Occupied(entry) => change(entry.into_mut()),
            Entry::Vacant(entry) if room => {
                change(entry.insert(ProcessImage::default()));
            }
            Entry::Vacant(_) => self.losses.add(LossReason::MappingsLost, 1),
        }
    }

    fn record_image(&mut self, id: ImageId, seen: ProcessImage, at: Duration) {
        self.with_image(id, |image| {
            image.comm = seen.comm;
            image.exe = seen.exe;
            update_metadata(image, seen.user, seen.cgroup, seen.threads);
        });
        self.name_threads(id, seen.thread_names);
        for mapping in seen.mappings {
            self.insert(id, mapping, at);
        }
    }

    fn name_threads(&mut self, id: ImageId, names: impl IntoIterator<Item = (Tid, String)>) {
        for (tid, name) in names {
            if self.thread_names >= self.limits.thread_names {
                return;
            }
            let mut new = false;
            self.with_image(id, |image| new = image.thread_names.insert(tid, name).is_none());
            self.thread_names += usize::from(new);
        }
    }

    /// Removes the names of threads that have ended.
    pub fn forget_threads(&mut self, id: ImageId, ended: impl IntoIterator<Item = Tid>) {
        let Some(image) = self.images.get_mut(&id) else { return };
        let before = image.thread_names.len();
        ended.into_iter().for_each(|tid| drop(image.thread_names.remove(&tid)));
        self.thread_names -= before - image.thread_names.len();
    }

    fn insert(&mut self, id: ImageId, mapping: Mapping, at: Duration) {
        if mapping.start >= mapping.end {
            self.losses.add(LossReason::MappingsLost, 1);
            return;
        }
        let room = self.limits.mappings.saturating_sub(self.mappings);
        let (mut before, mut after, mut has_room) = (0, 0, true);
        self.with_image(id, |image| {
            before = mapping_count(image);
            has_room = insert_mapping(image, mapping, at, room);
            after = mapping_count(image);
        });
        self.losses.add(LossReason::MappingsLost, u64::from(!has_room));
        self.mappings = self.mappings - before + after;
    }
}

/// Returns the number of mappings of an image, including replaced ones.
const fn mapping_count(image: &ProcessImage) -> usize {
    image.mappings.len() + image.replaced.len()
}

/// Updates the user, cgroup and thread count of an image. Values that could not be read do not change.
fn update_metadata(image: &mut ProcessImage, user: Option<User>, cgroup: Option<Arc<Cgroup>>, threads: Option<u32>) {
    image.user = user.or(image.user.take());
    image.cgroup = cgroup.or(image.cgroup.take());
    image.threads = threads.or(image.threads);
}

/// Inserts `new` into the ordered mappings of `image` at the time `at`. Clips or removes the mappings that `new`
/// overlaps, as the kernel does, and records overlapped mappings of other contents as replaced. `room`: maximum
/// number of added mappings.
///
/// Returns false if `room` is too small. Then `new` is left out, but the overlapped mappings are still removed: a
/// missing symbol is better than a wrong one.
fn insert_mapping(image: &mut ProcessImage, new: Mapping, at: Duration, room: usize) -> bool {
    let mappings = &mut image.mappings;
    let first = mappings.partition_point(|old| old.end <= new.start);
    let end = first + mappings[first..].partition_point(|old| old.start < new.end);
    let overlapped = &mappings[first..end];
    let left = overlapped.first().filter(|old| old.start < new.start).map(|old| clip(old, old.start, new.start));
    let right = overlapped.last().filter(|old| old.end > new.end).map(|old| clip(old, new.end, old.end));
    let replaced = overlapped.iter().filter(|old| !old.agrees(&new));
    let replaced: Vec<_> = replaced.map(|old| clip(old, old.start.max(new.start), old.end.min(new.end))).collect();
    let more = 1 + usize::from(left.is_some()) + usize::from(right.is_some()) + replaced.len();
    let has_room = more <= overlapped.len() + room;
    if has_room {
        mappings.splice(first..end, left.into_iter().chain([new]).chain(right));
        replaced.into_iter().for_each(|old| image.replaced.add(old, at));
    } else {
        // Splitting a mapping in two would add a mapping, so only the left part remains.
        mappings.splice(first..end, left.into_iter().chain(right).take(end - first));
    }
    has_room
}

/// Returns the part of `mapping` from `start` to `end`.
fn clip(mapping: &Mapping, start: AbsAddr, end: AbsAddr) -> Mapping {
    Mapping { start, end, offset: advance(mapping.offset, mapping.start, start), object: mapping.object.clone() }
}

/// Returns the file offset at address `to`. `offset`: file offset at address `from`. Wraps like the kernel's
/// arithmetic.
const fn advance(offset: FileOffset, from: AbsAddr, to: AbsAddr) -> FileOffset {
    FileOffset(offset.0.wrapping_add(to.0.wrapping_sub(from.0)))
}

#[cfg(test)]
mod tests;
