//! The processes in scope without an allocator that is probed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use memtrace_host::procfs;
use memtrace_host::procfs::ProcessError;
use memtrace_model::{
    EventClass, ImageId, ImageStart, ImageUsage, Object, ProcessImage, Quantities, Snapshot, Snapshots, Untraced,
    UntracedProcess, UntracedReason,
};

use super::tracker::ProcessTracker;

/// The reasons that objects give, the most specific first: a process has the first of those of its objects.
const PRECEDENCE: [UntracedReason; 8] = [
    UntracedReason::NotAttached,
    UntracedReason::UnsupportedAllocator,
    UntracedReason::Architecture,
    UntracedReason::Go,
    UntracedReason::Stripped,
    UntracedReason::Damaged,
    UntracedReason::Unreadable,
    UntracedReason::NoAllocator,
];

/// Time that the dynamic loader may take to map the C library. Until then, a new process has no allocator yet.
const LOADING: Duration = Duration::from_millis(100);

/// Coverage of the processes in scope by probes in allocators.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// A process in scope has an allocator with probes.
    has_probed: bool,
    /// The processes in scope without one that were in the registry.
    without: Vec<(ImageId, UntracedProcess)>,
    /// The processes in scope that ended before, as far as a class records nothing of them.
    ended: BTreeMap<EventClass, Untraced>,
    /// A class records events of a process in scope that ended before, or could have.
    has_traced: bool,
    /// Number of allocators that images in scope mapped before their probes.
    late: u64,
}

impl Coverage {
    /// Returns the coverage of the images that `is_selected` returns true for. The last image of a process counts:
    /// after an exec, nothing of the earlier ones is left.
    pub(crate) fn of(tracker: &mut ProcessTracker, is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool) -> Self {
        let mut coverage = Self::default();
        let mut unclear = Vec::new();
        let mut images = tracker.images().iter().peekable();
        while let Some((&id, image)) = images.next() {
            if !tracker.is_traced(id.pid) || id.pid.0 == std::process::id() {
                continue;
            }
            let is_next = |&(next, image): &(&ImageId, &ProcessImage)| {
                next.pid == id.pid && matches!(image.start, ImageStart::Exec(_))
            };
            if images.peek().is_some_and(is_next) {
                continue;
            }
            if !tracker.allocators.has_probes(id.pid, image) {
                if is_selected(tracker, id) {
                    unclear.push(id);
                }
            } else if !coverage.has_probed {
                coverage.has_probed = is_selected(tracker, id);
            }
        }
        for id in unclear {
            match Examination::of(tracker, id) {
                Examination::Probed => coverage.has_probed = true,
                Examination::Untraced(process) => coverage.without.push((id, process)),
                Examination::NoProcess => {}
            }
        }
        coverage
    }

    /// Returns the processes of which `class` records nothing.
    pub(crate) fn untraced(&self, class: EventClass, snapshots: &Snapshots) -> Untraced {
        let snapshot = snapshots.0.get(&class);
        // An event proves that the allocator has probes, although its file could not be opened for this process.
        let is_recorded = |id: &ImageId| snapshot.and_then(|snapshot| snapshot.images.get(id)).is_some_and(has_events);
        let untraced = self.without.iter().filter(|(id, process)| process.reason.applies_to(class) && !is_recorded(id));
        let mut all = Untraced::new(untraced.map(|(_, process)| process.clone()).collect());
        if let Some(ended) = self.ended.get(&class) {
            all.merge(ended);
        }
        all
    }

    /// Adds the processes that ended during the run.
    pub(crate) fn merge(&mut self, ended: Self) {
        self.has_probed |= ended.has_probed;
        self.has_traced |= ended.has_traced;
        self.without.extend(ended.without);
        self.late += ended.late;
        for (class, untraced) in ended.ended {
            self.ended.entry(class).or_default().merge(&untraced);
        }
    }

    /// Returns the images of which `class` records nothing for a reason that is certain.
    pub(super) fn untraced_images(&self, class: EventClass) -> BTreeSet<ImageId> {
        let is_untraced = |reason: UntracedReason| is_certain(reason) && reason.applies_to(class);
        self.without.iter().filter(|(_, process)| is_untraced(process.reason)).map(|(id, _)| *id).collect()
    }

    /// Returns the largest process in scope if no class of `snapshots` traces any of them.
    pub(crate) fn largest_if_none_is_traced(&self, snapshots: &Snapshots) -> Option<UntracedProcess> {
        let is_traced = |(&class, snapshot): (&EventClass, &Snapshot)| {
            snapshot.images.values().any(has_events)
                || self.without.iter().any(|(_, process)| !process.reason.applies_to(class))
        };
        if self.has_probed || self.has_traced || snapshots.0.iter().any(is_traced) {
            return None;
        }
        let mut all = Untraced::new(self.without.iter().map(|(_, process)| process.clone()).collect());
        self.ended.values().for_each(|ended| all.merge(ended));
        all.listed().first().cloned()
    }

    /// Returns the number of processes of which one of `classes` records nothing.
    pub(crate) fn count(&self, classes: &[EventClass]) -> usize {
        let applies = |process: &UntracedProcess| classes.iter().any(|&class| process.reason.applies_to(class));
        self.without.iter().filter(|(_, process)| applies(process)).count()
    }

    /// Adds a process in scope that has ended, and whose image is still in the registry. `recorded` are the classes
    /// with events of it. Returns the `classes` that have it as a process without events.
    pub(crate) fn add_ended(
        &mut self,
        tracker: &mut ProcessTracker,
        id: ImageId,
        recorded: &[EventClass],
        classes: &[EventClass],
    ) -> Vec<EventClass> {
        self.has_traced |= !recorded.is_empty();
        let Some(image) = tracker.images().get(&id).filter(|_| recorded.len() < classes.len()) else {
            return Vec::new();
        };
        let is_program = tracker.is_program(id);
        let has_probes = tracker.allocators.has_probes(id.pid, image);
        self.has_probed |= has_probes;
        let examined = if has_probes { Examination::Probed } else { Examination::of(tracker, id) };
        let mut idle = Vec::new();
        for &class in classes.iter().filter(|class| !recorded.contains(class)) {
            match &examined {
                Examination::Untraced(process) if process.reason.applies_to(class) => {
                    self.ended.entry(class).or_default().add(process.clone());
                    if is_certain(process.reason) {
                        continue;
                    }
                }
                Examination::Untraced(_) => self.has_traced = true,
                Examination::Probed | Examination::NoProcess => {}
            }
            idle.extend(is_program.then_some(class));
        }
        idle
    }

    /// Adds the late allocators of the remaining images that `is_selected` returns true for.
    pub(crate) fn add_remaining_late(
        &mut self,
        tracker: &ProcessTracker,
        is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
    ) {
        self.add_late(tracker.allocators.count_late(|id| is_selected(tracker, id)));
    }

    /// Adds allocators that images in scope mapped before their probes.
    pub(crate) const fn add_late(&mut self, allocators: u64) {
        self.late += allocators;
    }

    /// Returns the number of allocators that images in scope mapped before their probes.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// Returns true if no process was in scope.
    pub(crate) fn has_no_process(&self) -> bool {
        !self.has_probed && !self.has_traced && self.without.is_empty() && self.ended.is_empty()
    }
}

/// Returns true unless the process may have had a traced allocator.
fn is_certain(reason: UntracedReason) -> bool {
    reason != UntracedReason::Ended
}

/// Returns true if an event was recorded. It proves that the allocator has probes.
fn has_events(usage: &ImageUsage) -> bool {
    usage.total != Quantities::default() || usage.unmatched_frees > 0
}

/// Result of the examination of an image.
enum Examination {
    /// One of its allocators has probes.
    Probed,
    Untraced(UntracedProcess),
    /// Nothing that could allocate.
    NoProcess,
}

impl Examination {
    /// Examines an image of which no allocator is known.
    fn of(tracker: &mut ProcessTracker, id: ImageId) -> Self {
        let Some(image) = tracker.images().get(&id) else { return Self::NoProcess };
        let (comm, exe, start) = (image.comm.clone(), image.exe.clone(), image.start);
        let mut runs = image.ended.is_none();
        let mut objects = mapped_files(image);
        let mut is_readable = true;
        if runs {
            // Mmap events can be lost, and a file that is mapped can be opened although its path leads elsewhere.
            match procfs::read_image(id.pid, &mut tracker.objects) {
                Ok(image) => objects = mapped_files(&image),
                Err(ProcessError::Permission { .. }) => is_readable = false,
                Err(_) => runs = false,
            }
        }
        // A kernel thread, or the child of an unknown process, which shared its memory.
        if objects.is_empty() && is_readable && !matches!(start, ImageStart::Exec(_)) {
            return Self::NoProcess;
        }
        let reasons: Option<Vec<_>> =
            objects.iter().map(|object| tracker.allocators.obstacle(id.pid, object)).collect();
        let Some(reasons) = reasons else { return Self::Probed };
        let reason = PRECEDENCE.into_iter().find(|reason| reasons.contains(reason));
        let reason = match reason.filter(|reason| is_readable && *reason != UntracedReason::Unreadable) {
            Some(reason) => reason,
            None if runs => UntracedReason::Unreadable,
            None => UntracedReason::Ended,
        };
        let age = start.tick().map(|start| tracker.now().saturating_sub(start.since_start()));
        if reason == UntracedReason::NoAllocator && age.is_some_and(|age| age < LOADING) {
            return Self::NoProcess;
        }
        let rss = if runs { procfs::counted(id.pid).ok().map(|counted| counted.rss) } else { None };
        Self::Untraced(UntracedProcess { pid: id.pid, comm, exe, reason, rss })
    }
}

/// Returns the mapped files.
fn mapped_files(image: &ProcessImage) -> Vec<Arc<Object>> {
    let objects = image.objects();
    let mut files: Vec<Arc<Object>> = Vec::new();
    for object in objects.filter(|object| object.path.is_absolute()) {
        if !files.iter().any(|file| Arc::ptr_eq(file, object)) {
            files.push(Arc::clone(object));
        }
    }
    files
}

#[cfg(test)]
mod tests;
