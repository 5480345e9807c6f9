//! Processes in scope that have no allocator with probes.

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

/// Reasons why objects have no probes, most specific first. A process gets the most specific reason of its objects.
const PRECEDENCE: [UntracedReason; 10] = [
    UntracedReason::NotAttached,
    UntracedReason::UnsupportedAllocator,
    UntracedReason::Architecture,
    UntracedReason::Go,
    UntracedReason::NoOwnProfile,
    UntracedReason::NotPatched,
    UntracedReason::Stripped,
    UntracedReason::Damaged,
    UntracedReason::Unreadable,
    UntracedReason::NoAllocator,
];

/// Time that the dynamic loader can take to map the C library. A younger process without an allocator does not count as
/// untraced.
const LOADING: Duration = Duration::from_millis(100);

/// Coverage of the processes in scope by probes in allocators.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// True if a process in scope has an allocator with probes, or a heap profile of its own that is read.
    has_probed: bool,
    /// Processes in scope that have no allocator with probes. Contains only processes with an image in the registry.
    without: Vec<(ImageId, UntracedProcess)>,
    /// Ended processes in scope that were not traced for an event class, by class.
    ended: BTreeMap<EventClass, Untraced>,
    /// True if events of an ended process in scope were recorded, or could have been recorded.
    has_traced: bool,
    /// Number of allocators that images in scope mapped before the allocators had probes.
    late: u64,
}

impl Coverage {
    /// Returns the coverage of the images that `is_selected` accepts. Skips images that an exec has replaced, because nothing
    /// of them is left.
    pub(crate) fn of(tracker: &mut ProcessTracker, is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool) -> Self {
        let mut coverage = Self::default();
        let (mut unclear, mut go) = (Vec::new(), Vec::new());
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
            } else {
                let process = go_program(tracker, id);
                if (process.is_some() || !coverage.has_probed) && is_selected(tracker, id) {
                    coverage.has_probed = true;
                    go.extend(process.map(|process| (id, process)));
                }
            }
        }
        coverage.without = go;
        for id in unclear {
            match Examination::of(tracker, id) {
                Examination::Probed => coverage.has_probed = true,
                Examination::Untraced(process) => {
                    coverage.has_probed |= process.reason == UntracedReason::Sampled;
                    coverage.without.push((id, process));
                }
                Examination::NoProcess => {}
            }
        }
        coverage
    }

    /// Returns the processes in scope that are not traced for `class`.
    pub(crate) fn untraced(&self, class: EventClass, snapshots: &Snapshots) -> Untraced {
        let snapshot = snapshots.0.get(&class);
        // A recorded event proves that an allocator has probes, even if memtrace could not open the allocator's file
        // for this process.
        let is_recorded = |id: &ImageId| snapshot.and_then(|snapshot| snapshot.images.get(id)).is_some_and(has_events);
        // The events of a Go program come from its C code only. They do not prove that the Go heap is traced.
        let lacks = |(id, process): &&(ImageId, UntracedProcess)| {
            process.reason.applies_to(class) && (process.reason.is_go() || !is_recorded(id))
        };
        let untraced = self.without.iter().filter(lacks);
        let mut all = Untraced::new(untraced.map(|(_, process)| process.clone()).collect());
        if let Some(ended) = self.ended.get(&class) {
            all.merge(ended);
        }
        all
    }

    /// Adds the coverage of the processes that ended during the run.
    pub(crate) fn merge(&mut self, ended: Self) {
        self.has_probed |= ended.has_probed;
        self.has_traced |= ended.has_traced;
        self.without.extend(ended.without);
        self.late += ended.late;
        for (class, untraced) in ended.ended {
            self.ended.entry(class).or_default().merge(&untraced);
        }
    }

    /// Returns the images that are certainly not traced for `class`.
    pub(super) fn untraced_images(&self, class: EventClass) -> BTreeSet<ImageId> {
        let is_untraced = |reason: UntracedReason| is_certain(reason) && reason.applies_to(class);
        self.without.iter().filter(|(_, process)| is_untraced(process.reason)).map(|(id, _)| *id).collect()
    }

    /// Returns the largest process in scope if no process in scope is traced for any class of `snapshots`.
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

    /// Returns the number of processes that are not traced for at least one of `classes`. A process whose page faults are left out
    /// because its blocks are sampled does not count.
    pub(crate) fn count(&self, classes: &[EventClass]) -> usize {
        let applies = |process: &UntracedProcess| {
            process.reason != UntracedReason::Sampled && classes.iter().any(|&class| process.reason.applies_to(class))
        };
        self.without.iter().filter(|(_, process)| applies(process)).count()
    }

    /// Adds a process in scope that has ended. The registry must still have its image. `recorded`: classes with events of the
    /// process. `classes`: all traced classes. Returns the classes that have no events of the process, but list it in their
    /// reports.
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

    /// Adds the late allocators that [`Self::add_late`] has not counted at the end of their image. Counts only images that
    /// `is_selected` accepts.
    pub(crate) fn add_remaining_late(
        &mut self,
        tracker: &ProcessTracker,
        is_selected: &dyn Fn(&ProcessTracker, ImageId) -> bool,
    ) {
        self.add_late(tracker.allocators.count_late(|id| is_selected(tracker, id)));
    }

    /// Adds a number of allocators that images in scope mapped before the allocators had probes.
    pub(crate) const fn add_late(&mut self, allocators: u64) {
        self.late += allocators;
    }

    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// Returns true if no process was in scope. A process that has left the scope by an exec or a new name still counts,
    /// because it has events.
    pub(crate) fn has_no_process(&self, snapshots: &Snapshots) -> bool {
        let is_empty = |snapshot: &Snapshot| !snapshot.images.values().any(has_events);
        !self.has_probed
            && !self.has_traced
            && self.without.is_empty()
            && self.ended.is_empty()
            && snapshots.0.values().all(is_empty)
    }
}

/// Returns true if a process with this reason certainly had no traced allocator.
fn is_certain(reason: UntracedReason) -> bool {
    reason != UntracedReason::Ended
}

/// Returns true if an event of the image was recorded.
fn has_events(usage: &ImageUsage) -> bool {
    usage.total != Quantities::default() || usage.unmatched_frees > 0 || usage.unmatched_samples > 0
}

/// Returns the running process of an image if its executable is a Go program, and its heap profile is not read. An allocator with
/// probes can serve the C code of such a program, but the Go heap is not traced.
fn go_program(tracker: &ProcessTracker, id: ImageId) -> Option<UntracedProcess> {
    let image = tracker.images().get(&id).filter(|image| image.ended.is_none())?;
    tracker.go_program(id)?;
    Some(UntracedProcess {
        pid: id.pid,
        comm: image.comm.clone(),
        exe: image.exe.clone(),
        reason: tracker.own_profiles.obstacle(id)?,
        rss: procfs::counted(id.pid).ok().map(|counted| counted.rss),
    })
}

/// Result of the examination of an image.
enum Examination {
    /// An allocator of the image has probes, or the image's own heap profile is read.
    Probed,
    /// No allocator of the image has probes, or its page faults are left out because its blocks are sampled.
    Untraced(UntracedProcess),
    /// The image has nothing that could allocate.
    NoProcess,
}

impl Examination {
    /// Examines an image that has no known allocator with probes.
    fn of(tracker: &mut ProcessTracker, id: ImageId) -> Self {
        let Some(image) = tracker.images().get(&id) else { return Self::NoProcess };
        let (comm, exe, start) = (image.comm.clone(), image.exe.clone(), image.start);
        let mut runs = image.ended.is_none();
        let rss = |runs: bool| if runs { procfs::counted(id.pid).ok().map(|counted| counted.rss) } else { None };
        if tracker.own_profiles.is_sampled(id) {
            if !tracker.own_profiles.pages_are_left_out(id) {
                return Self::Probed;
            }
            let (reason, rss) = (UntracedReason::Sampled, rss(runs));
            return Self::Untraced(UntracedProcess { pid: id.pid, comm, exe, reason, rss });
        }
        let mut objects = mapped_files(image);
        let mut is_readable = true;
        if runs {
            // The mappings are read again, because mmap events can be lost. procfs can open a mapped file even if
            // another file has its path.
            match procfs::read_image(id.pid, &mut tracker.objects) {
                Ok(image) => objects = mapped_files(&image),
                Err(ProcessError::Permission { .. } | ProcessError::Locked(_)) => is_readable = false,
                Err(_) => runs = false,
            }
        }
        // This is a kernel thread, or the child of a process with unknown mappings.
        if objects.is_empty() && is_readable && !matches!(start, ImageStart::Exec(_)) {
            return Self::NoProcess;
        }
        let reasons: Option<Vec<_>> =
            objects.iter().map(|object| tracker.allocators.obstacle(id.pid, object)).collect();
        let Some(reasons) = reasons else { return Self::Probed };
        let reason = PRECEDENCE.into_iter().find(|reason| reasons.contains(reason));
        let reason = match reason.filter(|reason| is_readable && *reason != UntracedReason::Unreadable) {
            // A library that is written in Go has no profile: the executable's runtime keeps the profile.
            Some(UntracedReason::Go) if tracker.go_program(id).is_some() => {
                tracker.own_profiles.obstacle(id).unwrap_or(UntracedReason::Go)
            }
            Some(reason) => reason,
            None if runs => UntracedReason::Unreadable,
            None => UntracedReason::Ended,
        };
        let age = start.tick().map(|start| tracker.now().saturating_sub(start.since_start()));
        if reason == UntracedReason::NoAllocator && age.is_some_and(|age| age < LOADING) {
            return Self::NoProcess;
        }
        Self::Untraced(UntracedProcess { pid: id.pid, comm, exe, reason, rss: rss(runs) })
    }
}

/// Returns the mapped files, each once.
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
