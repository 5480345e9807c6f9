//! Attaches the probes of a monitor, and follows the monitored processes.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_history::registry;
use memtrace_host::kernel::{self, Kernel, Probes, ProcessFilter, Scope, ThreadUsageReader};
use memtrace_host::procfs::{self, Objects};
use memtrace_host::target_files::open_target_file;
use memtrace_model::format;
use memtrace_model::{
    Bytes, CounterSource, EventClass, LossReason, Losses, Mapping, PartKeys, Pid, ThreadsInterval, Tick,
};
use memtrace_object::allocators::Allocator;
use tokio::sync::Notify;

use super::config::{SourceChoice, ThreadsConfig};
use super::jemalloc::JemallocReader;
use crate::run_kit::detach::Detach;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::CommandEnd;
use crate::run_kit::privileges;
use crate::run_kit::start_progress::StartProgress;
use crate::targets::select::ProbeSite;
use crate::targets::select::Selection;
use crate::targets::select::{
    AllocatorProbes, LateProbes, LeftOut, PostponedProbes, Targets, count_unread_files, filter, other_tracers, refused,
};
use crate::targets::track::{Changes, Coverage, ProcessTracker};

/// Size of the ring of mmap events, for each processor.
const MMAP_RING: Bytes = Bytes(1 << 17);

/// Probes of a monitor, and the tracker of the monitored processes. Dropping it removes the probes.
pub(super) struct Attachment {
    kernel: Kernel,
    probes: Probes,
    /// Allocators that wait for their probes.
    postponed: PostponedProbes,
    tracker: ProcessTracker,
    targets: Targets,
    /// Notes about other memtraces and other tracers.
    tracer_notes: Vec<String>,
    filter: ProcessFilter,
    /// Processes with readable counters of jemalloc.
    jemalloc: BTreeSet<Pid>,
    /// Number of allocators that ended images mapped before the allocators had probes.
    late: u64,
    /// False if an allocator of a selected process has no probes, because they could not be attached.
    complete: bool,
}

impl Attachment {
    /// Finds the targets, attaches the probes and starts to count. `progress` gets each step.
    pub(super) fn start(
        config: &ThreadsConfig,
        clock_start: Duration,
        progress: &StartProgress,
    ) -> Result<(Self, ThreadUsageReader, JemallocReader), Error> {
        kernel::features::require().map_err(|error| from_engines::kernel(None, error))?;
        let new_tracker = || {
            let limits = registry::Limits::default();
            ProcessTracker::new(clock_start, PartKeys::NONE, config.user_hooks.clone(), MMAP_RING, limits)
        };
        let mut tracker = new_tracker();
        progress.begin("looking for other memtraces");
        let left_out = LeftOut::find(&config.target);
        let filter = filter::resolve(&config.target, false, left_out.memtraces())?;
        filter::require_match(&config.target, &filter)?;
        let probe_site = (config.source != SourceChoice::Allocator).then_some(ProbeSite::Best);
        let (mut targets, mut allocators) = match Targets::find(&config.target, probe_site, &mut tracker, progress) {
            // Without an allocator, the monitor has only the kernel's counters.
            Err(error @ Error::NoAllocator { .. }) => {
                tracker = new_tracker();
                let (mut targets, allocators) = Targets::find(&config.target, None, &mut tracker, progress)?;
                targets.notes.push(format!("no counters of the heap: {error}"));
                (targets, allocators)
            }
            found => found?,
        };
        privileges::keep_for_tracing();
        let mut jemalloc = JemallocReader::default();
        let counted = match config.source {
            SourceChoice::Bpf => Vec::new(),
            SourceChoice::Auto | SourceChoice::Allocator => find_jemalloc(&targets, &mut tracker, &mut jemalloc),
        };
        if config.source == SourceChoice::Allocator && jemalloc.is_empty() {
            targets.notes.push(String::from("no counters of the heap: no allocator of --pid has counters of its own"));
        }
        progress.begin("loading BPF programs");
        let (mut kernel, readers) =
            Kernel::load(&options(clock_start, filter.clone())).map_err(|error| from_engines::kernel(None, error))?;
        drop(readers);
        for pid in targets.pids() {
            kernel.follow(pid).map_err(|error| from_engines::kernel(Some(pid), error))?;
        }
        allocators.extend(targets.follow_descendants(&mut kernel, &mut tracker)?);
        let reader = kernel.take_thread_usage().map_err(|error| from_engines::kernel(None, error))?;
        progress.begin("looking for the probes of other tracers");
        let others = other_tracers::find(&allocators, &targets, &filter);
        let tracer_notes = left_out.note().into_iter().chain(other_tracers::note(&others)).collect();
        progress.begin(other_tracers::attach_step(&others));
        let mut probes = Probes::default();
        let is_needed = |probes: &&AllocatorProbes| !counted.iter().any(|counted| counted.replaces(probes));
        AllocatorProbes::place_all(allocators.iter().filter(is_needed), &mut kernel, &mut probes, progress)?;
        kernel.read_counters_at_exit(jemalloc.distances()).map_err(|error| from_engines::kernel(None, error))?;
        let complete = !refused::note_all(&probes, &allocators, &mut targets, &mut tracker, &filter);
        kernel.count_threads().map_err(|error| from_engines::kernel(None, error))?;
        if let Some(pid) = targets.first_exited() {
            return Err(Error::Ended { pid });
        }
        // If a process calls exec from now on, the BPF programs forget its counters. Check that no process has called
        // exec before.
        counted.iter().try_for_each(|allocator| allocator.require_mapped(tracker.objects()))?;
        let attachment = Self {
            kernel,
            probes,
            postponed: PostponedProbes::default(),
            tracker,
            targets,
            tracer_notes,
            filter,
            jemalloc: jemalloc.pids().collect(),
            late: 0,
            complete,
        };
        Ok((attachment, reader, jemalloc))
    }

    /// Lets the command run, if there is one.
    pub(super) fn release_command(&mut self) -> Result<(), Error> {
        self.targets.release()
    }

    /// Describes the targets and probes: `to pid 4711 (redis-server), 12 probes`.
    pub(super) fn description(&mut self) -> String {
        let untraced = match if self.targets.ran_before() { self.untraced() } else { 0 } {
            0 => String::new(),
            some => format!(", {} without counters of the heap", format::counted(some as u64, "process", "processes")),
        };
        format!("to {}, {} probes{untraced}", self.targets.name, self.probes.len())
    }

    pub(super) fn name(&self) -> &str {
        &self.targets.name
    }

    /// Returns the paths of the cgroups of all processes in the interval.
    pub(super) fn cgroups(&self, interval: &ThreadsInterval) -> BTreeSet<&str> {
        let images = interval.processes.iter().filter_map(|process| self.tracker.image(process.pid));
        images.filter_map(|image| image.cgroup.as_deref()).map(|cgroup| cgroup.path.as_str()).collect()
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.targets.notes
    }

    /// Returns the notes about other memtraces and other tracers.
    pub(super) fn tracer_notes(&self) -> &[String] {
        &self.tracer_notes
    }

    pub(super) const fn filter(&self) -> &ProcessFilter {
        &self.filter
    }

    pub(super) fn pidfds(&self) -> Result<Vec<OwnedFd>, Error> {
        self.targets.pidfds().map_err(|error| Error::Failed(format!("cannot wait for the targets: {error}")))
    }

    /// Returns the notification that is sent when an image has stopped at its exec.
    pub(super) fn exec_stopped(&self) -> Arc<Notify> {
        self.targets.exec_stopped()
    }

    /// Probes newly mapped allocators, then lets stopped images run. Forgets ended processes, and closes unused files.
    pub(super) fn update(&mut self, observer: &mut dyn Observer) {
        let stopped = self.targets.take_stopped_images();
        let Changes { allocators, .. } = self.tracker.poll();
        for new in allocators {
            self.probe(new, observer);
        }
        while let Some(postponed) = self.postponed.take_due(Instant::now()) {
            self.probe(postponed, observer);
        }
        for object in self.kernel.attach_waiting(&mut self.probes, Instant::now()) {
            self.tracker.allocators.set_attached(&object);
        }
        self.targets.resume(&stopped, &mut self.tracker);
        count_unread_files(&self.filter, &mut self.tracker);
        self.forget_ended();
        let closed = self.tracker.close_unused_files(false, std::iter::empty());
        self.probes.remove_objects(&closed);
        self.postponed.forget_files(&closed);
        self.kernel.flush_log();
    }

    /// Removes the processes that have ended from the tracker.
    fn forget_ended(&mut self) {
        let ended: Vec<_> = self.tracker.ended_before(Tick(u32::MAX)).collect();
        for (id, end, at) in ended {
            let late = self.tracker.take_late(id);
            if late > 0 && Selection::of(&self.filter).contains(&self.tracker, id) {
                self.late += late;
            }
            self.tracker.take_ended(id, end, at);
        }
    }

    fn probe(&mut self, new: (Pid, Allocator), observer: &mut dyn Observer) {
        let is_selected = Selection::of(&self.filter).contains(&self.tracker, self.tracker.latest_id(new.0));
        let Self { targets, tracker, kernel, probes, postponed, .. } = self;
        let late = LateProbes::place(new, targets, tracker, kernel, probes, postponed);
        let Some(LateProbes { is_complete, note }) = late else { return };
        self.complete &= is_complete || !is_selected;
        if let Some(note) = note.filter(|_| is_selected)
            && self.targets.add_late_note(&note)
        {
            observer.note(&note);
        }
    }

    /// Returns the origin of the heap counters of a process.
    pub(super) fn source(&self, pid: Pid) -> CounterSource {
        match self.jemalloc.contains(&pid) {
            true => CounterSource::Jemalloc,
            false if self.targets.probe_site.is_some() && self.tracker.has_probes(pid) => CounterSource::Bpf,
            false => CounterSource::None,
        }
    }

    /// Returns true if the probes of all allocators of selected processes are attached.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds a note with the number of late allocators that got no note of their own.
    pub(super) fn count_late_notes(&mut self, observer: &mut dyn Observer) {
        let before = self.targets.notes.len();
        self.targets.count_late_notes();
        self.targets.notes.extend(self.postponed.note());
        self.targets.notes.extend(self.probes.waiting_note());
        self.targets.notes[before..].iter().for_each(|note| observer.note(note));
    }

    /// Returns the number of selected processes without counters of the heap.
    fn untraced(&mut self) -> usize {
        let selection = Selection::of(&self.filter);
        let coverage = Coverage::of(&mut self.tracker, &|tracker, id| selection.contains(tracker, id));
        coverage.count(&[EventClass::Heap])
    }

    /// Returns the losses so far.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = self.kernel.counters().losses;
        losses.merge(&self.tracker.losses());
        losses.add(LossReason::AllocatorLate, self.late);
        losses
    }

    /// Ends the stops at exec, and lets the stopped images run.
    pub(super) fn end_hold(&mut self) {
        self.targets.end_hold();
    }

    /// Returns the exit status of the command, if it has ended.
    pub(super) fn command_end(&mut self) -> Option<CommandEnd> {
        self.targets.command_end()
    }

    /// Starts to remove the probes.
    pub(super) fn detach(self) -> Detach {
        Detach::start(self.probes)
    }
}

/// An allocator that needs no probes, because it has counters of its own.
struct CountedAllocator {
    pid: Pid,
    /// Handle of the object that contains the allocator.
    object: PathBuf,
    /// A mapping of this object.
    mapping: Mapping,
    /// True if the allocator replaces the allocator of the C library.
    is_malloc: bool,
}

impl CountedAllocator {
    /// Returns true if `probes` are not needed: they belong to this allocator, or this allocator replaces the other
    /// allocators of the process.
    fn replaces(&self, probes: &AllocatorProbes) -> bool {
        self.pid == probes.pid && (self.is_malloc || self.object == probes.object)
    }

    /// Fails if the process does not map the object now. After an exec, the addresses of the counters contain other data.
    fn require_mapped(&self, objects: &mut Objects) -> Result<(), Error> {
        let (pid, Mapping { start, end, object, .. }) = (self.pid, &self.mapping);
        let mapped = procfs::object_at(pid, *start, *end, objects);
        match mapped.map_err(|error| from_engines::process(pid, error))? {
            mapped if mapped == *object => Ok(()),
            _ => Err(Error::Failed(format!("process {pid} called exec while memtrace was attaching to it"))),
        }
    }
}

/// Locates the counters of jemalloc in the processes that the user named.
fn find_jemalloc(
    targets: &Targets,
    tracker: &mut ProcessTracker,
    reader: &mut JemallocReader,
) -> Vec<CountedAllocator> {
    let mut counted = Vec::new();
    // Shared probes count the blocks of these processes anyway.
    if targets.command_pid().is_some() || targets.scopes().contains(&Scope::AllProcesses) {
        return counted;
    }
    for pid in targets.pids() {
        let survey = tracker.survey(pid);
        let Some(allocator) = survey.allocators.iter().find(|allocator| allocator.kinds.have_jemalloc()) else {
            continue;
        };
        let object = &allocator.object;
        let mapping = tracker.image(pid).and_then(|image| {
            image.mappings.iter().find(|mapping| mapping.object.as_ref().is_some_and(|own| Arc::ptr_eq(own, object)))
        });
        let (Some(mapping), Some(handle)) = (mapping, object.handle.clone()) else { continue };
        let added = open_target_file(&handle)
            .map_err(|error| error.to_string())
            .and_then(|file| reader.add(pid, mapping, &file));
        match added {
            Ok(()) => {
                let is_malloc =
                    allocator.functions.iter().any(|function| function.names().iter().any(|name| name == "malloc"));
                counted.push(CountedAllocator { pid, object: handle, mapping: mapping.clone(), is_malloc });
            }
            Err(reason) => log::info!("the counters of jemalloc in process {pid} cannot be read: {reason}"),
        }
    }
    counted
}

fn options(clock_start: Duration, filter: ProcessFilter) -> kernel::Options {
    kernel::Options {
        start_ns: u64::try_from(clock_start.as_nanos()).unwrap_or(u64::MAX),
        filter,
        counts_threads: true,
        ..kernel::Options::default()
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::AbsAddr;

    use super::*;

    #[test]
    fn moved_object_and_unreadable_map_are_distinguished() {
        let (pid, mut objects) = (Pid(std::process::id()), Objects::new());
        let image = procfs::read_image(pid, &mut objects).unwrap();
        let has_file = |mapping: &&Mapping| mapping.object.as_ref().is_some_and(|object| object.handle.is_some());
        let mapping = image.mappings.iter().find(has_file).unwrap().clone();
        let object = mapping.object.as_ref().and_then(|object| object.handle.clone()).unwrap();
        let mut allocator = CountedAllocator { pid, object, mapping, is_malloc: true };
        allocator.require_mapped(&mut objects).unwrap();
        // Nothing is mapped at null.
        (allocator.mapping.start, allocator.mapping.end) = (AbsAddr(0), AbsAddr(4096));
        let mut error = |allocator: &CountedAllocator| allocator.require_mapped(&mut objects).unwrap_err().to_string();
        assert!(error(&allocator).contains("called exec"));
        // No process has this pid.
        allocator.pid = Pid(u32::MAX >> 1);
        assert!(!error(&allocator).contains("exec"));
    }
}
