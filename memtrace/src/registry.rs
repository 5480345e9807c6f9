//! Who was seen running what, mapped where. Pure: it is told by [`ProcessEvent`]s.
//!
//! Images are kept after their process has ended, since stacks of theirs are given names only when a report is written.
//! Nothing unmaps: the kernel does not tell of it, and a stack may have been taken while the code was still there. For the
//! same reason what a mapping replaces is kept, with the time until which it held.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{
    AbsAddr, Cgroup, FileOffset, ImageId, ImageStart, LossReason, Losses, Mapping, Pid, ProcessEvent, ProcessEventKind,
    ProcessImage, Tick, Tid, User,
};

/// The most images that a registry holds by default.
pub(crate) const MAX_IMAGES: usize = 131_072;

/// The most mappings that a registry holds by default, all images and replaced ones together: some 80 MB.
pub(crate) const MAX_MAPPINGS: usize = 1_048_576;

/// The most names of threads that a registry holds, all images together: some 8 MB. Beyond, a thread has its number alone.
const MAX_THREAD_NAMES: usize = 131_072;

/// Every image seen, and what it has mapped.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    images: BTreeMap<ImageId, ProcessImage>,
    /// Of every pid with an image: which one is its latest.
    latest: BTreeMap<Pid, Latest>,
    losses: Losses,
    max_images: usize,
    max_mappings: usize,
    mappings: usize,
    thread_names: usize,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    ordinal: u32,
    exited: bool,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// An empty registry with room for [`MAX_IMAGES`] and [`MAX_MAPPINGS`].
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::with_limits(MAX_IMAGES, MAX_MAPPINGS)
    }

    /// An empty registry that holds no more than `max_images` images and `max_mappings` mappings of all images together,
    /// replaced ones included.
    #[must_use]
    pub(crate) fn with_limits(max_images: usize, max_mappings: usize) -> Self {
        Self {
            images: BTreeMap::new(),
            latest: BTreeMap::new(),
            losses: Losses::default(),
            max_images,
            max_mappings,
            mappings: 0,
            thread_names: 0,
        }
    }

    /// Takes up a notice. What there is no room for is counted as [`LossReason::MappingsLost`].
    pub(crate) fn apply(&mut self, notice: ProcessEvent) {
        let ProcessEvent { pid, kind } = notice;
        match kind {
            ProcessEventKind::Seen { image, at } => {
                let id = self.current(pid);
                self.see(id, image, at);
            }
            ProcessEventKind::Forked { parent, at } => {
                let parents = self.latest_image(parent).cloned().unwrap_or_default();
                let id = self.current(pid);
                let (user, cgroup) = (parents.user.clone(), parents.cgroup.clone());
                self.see(
                    id,
                    ProcessImage { user: None, cgroup: None, threads: None, thread_names: BTreeMap::new(), ..parents },
                    at.since_start(),
                );
                self.with_image(id, |image| {
                    // What was read of the child itself is newer.
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
                let before = self.latest_image(pid).filter(|image| image.ended.is_none());
                let (user, cgroup) = before.map(|image| (image.user.clone(), image.cgroup.clone())).unwrap_or_default();
                self.end(pid, at);
                let id = self.next(pid);
                self.with_image(id, |image| {
                    image.comm = comm;
                    image.user = user;
                    image.cgroup = cgroup;
                    image.start = ImageStart::Exec(at);
                });
            }
            ProcessEventKind::Comm { comm } => {
                let id = self.current(pid);
                self.with_image(id, |image| image.comm = comm);
            }
            ProcessEventKind::Exe { exe } => {
                let id = self.current(pid);
                self.with_image(id, |image| image.exe = Some(exe));
            }
            ProcessEventKind::Belongs { user, cgroup, threads } => {
                let id = self.current(pid);
                self.with_image(id, |image| belong(image, user, cgroup, threads));
            }
            ProcessEventKind::Thread { tid, name } => {
                let id = self.current(pid);
                self.name_threads(id, [(tid, name)]);
            }
            ProcessEventKind::Exited { at } => {
                self.end(pid, at);
                if let Some(latest) = self.latest.get_mut(&pid) {
                    latest.exited = true;
                }
            }
        }
    }

    /// Forgets what `pid` has run, as if it had not been there: before events count, nothing of it is in the books.
    pub(crate) fn forget(&mut self, pid: Pid) {
        self.latest.remove(&pid);
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        let ids: Vec<_> = self.images.range(all).map(|(&id, _)| id).collect();
        for id in ids {
            let image = self.images.remove(&id).unwrap_or_default();
            self.mappings -= held(&image);
        }
    }

    /// Every image seen so far.
    #[must_use]
    pub(crate) const fn images(&self) -> &BTreeMap<ImageId, ProcessImage> {
        &self.images
    }

    /// What was lost so far: notices for which there was no room.
    #[must_use]
    pub(crate) const fn losses(&self) -> &Losses {
        &self.losses
    }

    fn latest_image(&self, pid: Pid) -> Option<&ProcessImage> {
        let latest = self.latest.get(&pid)?;
        self.images.get(&ImageId { pid, ordinal: latest.ordinal })
    }

    /// The image that `pid` runs now: after an exit, a new one.
    fn current(&self, pid: Pid) -> ImageId {
        let ordinal = match self.latest.get(&pid) {
            Some(latest) if latest.exited => latest.ordinal.saturating_add(1),
            Some(latest) => latest.ordinal,
            None => 0,
        };
        ImageId { pid, ordinal }
    }

    /// The image that `pid` runs after an exec. An exec is of a process that ran something before, even if nothing was
    /// known of it.
    fn next(&self, pid: Pid) -> ImageId {
        let current = self.current(pid);
        ImageId { ordinal: current.ordinal.saturating_add(1), ..current }
    }

    fn end(&mut self, pid: Pid, at: Tick) {
        let id = self.current(pid);
        if let Some(image) = self.images.get_mut(&id) {
            image.ended = Some(at);
        }
    }

    /// Changes an image, beginning it where it is new.
    fn with_image(&mut self, id: ImageId, change: impl FnOnce(&mut ProcessImage)) {
        let room = self.images.len() < self.max_images;
        match self.images.entry(id) {
            Entry::Occupied(entry) => change(entry.into_mut()),
            Entry::Vacant(entry) if room => {
                change(entry.insert(ProcessImage::default()));
                self.latest.insert(id.pid, Latest { ordinal: id.ordinal, exited: false });
            }
            Entry::Vacant(_) => {
                self.losses.add(LossReason::MappingsLost, 1);
                // What comes next is of the new image all the same, and must not be taken for the old one's.
                if let Some(latest) = self.latest.get_mut(&id.pid) {
                    *latest = Latest { ordinal: id.ordinal, exited: false };
                }
            }
        }
    }

    fn see(&mut self, id: ImageId, seen: ProcessImage, at: Duration) {
        self.with_image(id, |image| {
            image.comm = seen.comm;
            image.exe = seen.exe;
            belong(image, seen.user, seen.cgroup, seen.threads);
        });
        self.name_threads(id, seen.thread_names);
        for mapping in seen.mappings {
            self.insert(id, mapping, at);
        }
    }

    fn name_threads(&mut self, id: ImageId, names: impl IntoIterator<Item = (Tid, String)>) {
        for (tid, name) in names {
            if self.thread_names >= MAX_THREAD_NAMES {
                return;
            }
            let mut new = false;
            self.with_image(id, |image| new = image.thread_names.insert(tid, name).is_none());
            self.thread_names += usize::from(new);
        }
    }

    fn insert(&mut self, id: ImageId, mapping: Mapping, at: Duration) {
        if mapping.start >= mapping.end {
            self.losses.add(LossReason::MappingsLost, 1);
            return;
        }
        let room = self.max_mappings.saturating_sub(self.mappings);
        let (mut before, mut after, mut has_room) = (0, 0, true);
        self.with_image(id, |image| {
            before = held(image);
            has_room = place(image, mapping, at, room);
            after = held(image);
        });
        self.losses.add(LossReason::MappingsLost, u64::from(!has_room));
        self.mappings = self.mappings - before + after;
    }
}

/// How many mappings an image has and had.
const fn held(image: &ProcessImage) -> usize {
    image.mappings.len() + image.replaced.len()
}

/// Takes up what is known of whose a process is; what could not be read is as it was before.
fn belong(image: &mut ProcessImage, user: Option<User>, cgroup: Option<Arc<Cgroup>>, threads: Option<u32>) {
    image.user = user.or(image.user.take());
    image.cgroup = cgroup.or(image.cgroup.take());
    image.threads = threads.or(image.threads);
}

/// Puts `new` among the mappings of `image`, which stay ordered, at `at`. What it overlaps is cut or dropped, as the kernel
/// does, and kept as replaced where it was something else. With all that there may be `room` mappings more than there were.
///
/// Returns whether that was enough. Where it was not, `new` is left out and what it overlaps goes all the same: addresses
/// without a name are better than with a wrong one.
fn place(image: &mut ProcessImage, new: Mapping, at: Duration, room: usize) -> bool {
    let mappings = &mut image.mappings;
    let first = mappings.partition_point(|old| old.end <= new.start);
    let behind = first + mappings[first..].partition_point(|old| old.start < new.end);
    let overlapped = &mappings[first..behind];
    let left = overlapped.first().filter(|old| old.start < new.start).map(|old| cut(old, old.start, new.start));
    let right = overlapped.last().filter(|old| old.end > new.end).map(|old| cut(old, new.end, old.end));
    let others = overlapped.iter().filter(|old| !old.agrees(&new));
    let others: Vec<_> = others.map(|old| cut(old, old.start.max(new.start), old.end.min(new.end))).collect();
    let more = 1 + usize::from(left.is_some()) + usize::from(right.is_some()) + others.len();
    let has_room = more <= overlapped.len() + room;
    if has_room {
        mappings.splice(first..behind, left.into_iter().chain([new]).chain(right));
        others.into_iter().for_each(|old| image.replaced.add(old, at));
    } else {
        // One that is cut in two would be one more.
        mappings.splice(first..behind, left.into_iter().chain(right).take(behind - first));
    }
    has_room
}

/// The part of `mapping` from `start` to `end`.
fn cut(mapping: &Mapping, start: AbsAddr, end: AbsAddr) -> Mapping {
    Mapping { start, end, offset: advance(mapping.offset, mapping.start, start), object: mapping.object.clone() }
}

/// The offset in the file of address `to`, if that of `from` is `offset`. Wraps like the kernel's own arithmetic.
const fn advance(offset: FileOffset, from: AbsAddr, to: AbsAddr) -> FileOffset {
    FileOffset(offset.0.wrapping_add(to.0.wrapping_sub(from.0)))
}

#[cfg(test)]
mod tests;
