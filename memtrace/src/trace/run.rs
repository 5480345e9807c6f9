//! A run in progress: the work of each tick, and the work that is due between ticks.

mod finish;
pub(super) mod start;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use memtrace_history::Fact;
use memtrace_host::kernel::{ProbeHits, Probes};
use memtrace_model::{Pid, Tick, format};
use memtrace_object::allocators::Allocator;

use super::config::Config;
use super::context::Context;
use super::ended_images::{EndedImages, SETTLED, earlier};
use super::mark_functions::MarkFunctions;
use super::marks::MarkSource;
use super::parts::Parts;
use super::recorder::Recorder;
use super::stack_copies::find_copy;
use super::wait::{Due, Stop, WakeupSources};
use crate::run_kit::error::Error;
use crate::run_kit::marks::MarkRequest;
use crate::run_kit::observer::{Observer, Progress};
use crate::run_kit::service_manager::Watchdog;
use crate::targets::select::{LateProbes, PostponedProbes, Selection, count_unread_files, filter};
use crate::targets::track::{Changes, generated_code};

/// BPF programs are timed during one tick in this number, because timing has a cost of its own.
const TIMED_EVERY: u32 = 10;

/// Perf maps are opened at one tick in this number. They are opened while the process runs, because the perf map of a
/// process in a container can disappear when the process exits.
const OPENED_EVERY: u32 = 5;

/// Deleted files that nothing uses are closed at one tick in this number: every five seconds. A file is in use
/// until its process has been completed, so the number of open files does not show how many can be closed.
const DELETED_EVERY: u32 = 50;

/// Maximum number of newly mapped allocators that a tick receives in a run without probes of each call.
const MAX_LATE_ALLOCATORS: usize = 64;

/// A run in progress. Dropping it removes its probes.
pub(super) struct Trace {
    context: Context,
    parts: Parts,
    ended: EndedImages,
    /// Functions that set marks; `None` if there are none.
    mark_functions: Option<MarkFunctions>,
    /// Probes in memtrace itself that measured the cost of a probe. They are removed with the other probes at the end,
    /// since the removal takes a while.
    own_probes: Probes,
    /// Allocators that wait for their probes.
    postponed: PostponedProbes,
    /// Processor time of memtrace at the start of the run.
    cpu_at_start: Duration,
    /// Probe hits before the start of the run.
    hits_at_start: ProbeHits,
    /// Facts that were known at the start of the run.
    facts: Vec<Fact>,
    /// Number of untraced processes in scope when the probes were in place.
    untraced: usize,
    ticks: u32,
    /// Time and number of events of the last progress report.
    shown: (Instant, u64),
    /// Time that the progress counts down to; `None` if the run has no duration.
    deadline: Option<Instant>,
    watchdog: Watchdog,
}

impl Trace {
    /// Returns the descriptors and notifications to wait for during the run.
    pub(super) fn wakeup_sources(&mut self) -> Result<WakeupSources, Error> {
        let failed = |error| Error::Failed(format!("cannot wait for the targets: {error}"));
        let Context { targets, tables, .. } = &self.context;
        Ok(WakeupSources {
            pidfds: targets.pidfds().map_err(failed)?,
            table_requests: tables.requests_fd(),
            table_built: tables.ready(),
            exec_stopped: targets.exec_stopped(),
            // A new allocator has to be probed before it returns many blocks.
            polls_mappings: targets.probe_site.is_some() || self.parts.are_frequent(),
        })
    }

    /// Lets the command run, if there is one.
    pub(super) fn release_command(&mut self) -> Result<(), Error> {
        self.context.targets.release()
    }

    /// Describes the targets, the probes, the heap profiles that targets keep, and the numbers of patched and of untraced
    /// processes: `to pid 4711 (redis-server), 12 probes`.
    pub(super) fn description(&self) -> String {
        let profiles = match self.context.tracker.own_profiles.count() {
            0 => String::new(),
            some => format!(", {}", format::counted(some as u64, "heap profile", "heap profiles")),
        };
        let patched = match self.context.tracker.own_profiles.patched() {
            0 => String::new(),
            some => format!(", {}", format::counted(some as u64, "patched process", "patched processes")),
        };
        let untraced = match self.untraced {
            0 => String::new(),
            some => format!(", {} not traced", format::counted(some as u64, "process", "processes")),
        };
        let Context { targets, probes, .. } = &self.context;
        format!("to {}, {} probes{profiles}{patched}{untraced}", targets.name, probes.len())
    }

    /// Returns a note if no process matches the selection yet.
    pub(super) fn waiting_note(&self, config: &Config) -> Option<String> {
        filter::waiting_note(&config.target, &self.context.filter)
    }

    /// Returns a descriptor that is readable after functions that set marks were entered.
    pub(super) fn mark_descriptor(&self) -> Option<RawFd> {
        self.mark_functions.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.context.targets.notes
    }

    /// Lets the progress count down from `duration`, or count up if there is no duration. Returns the end of the countdown.
    pub(super) fn count_down(&mut self, duration: Option<Duration>) -> Option<tokio::time::Instant> {
        self.deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        self.deadline.map(Into::into)
    }

    /// Does the work that is due. Returns the reason that the run ends, if a part ends it.
    pub(super) fn handle(&mut self, due: Due, observer: &mut dyn Observer) -> Option<Stop> {
        match due {
            Due::Mappings => {
                self.update_mappings(observer);
                self.parts.poll(&mut self.context);
            }
            Due::Tick => self.tick(observer),
            Due::Mark(MarkSource::Request(request)) => self.mark(request, observer),
            Due::Mark(MarkSource::Functions) => self.mark_entered_functions(),
        }
        self.context.stop.take()
    }

    fn tick(&mut self, observer: &mut dyn Observer) {
        self.ticks = self.ticks.wrapping_add(1);
        self.context.kernel.time_programs(self.ticks % TIMED_EVERY == 1);
        let now = self.context.clock.now();
        self.update_mappings(observer);
        count_unread_files(&self.context.filter, &mut self.context.tracker);
        self.context.losses = self.context.kernel.counters().losses;
        self.parts.poll(&mut self.context);
        self.parts.tick(&mut self.context, observer);
        self.ended.complete(now, &mut self.context, &mut self.parts);
        self.record(now, observer);
        if self.ticks.is_multiple_of(OPENED_EVERY) {
            self.context.tracker.code_generators.open_perf_maps();
        }
        if self.ticks.is_multiple_of(DELETED_EVERY) {
            self.evict_objects(true);
        }
        self.context.kernel.flush_log();
        self.watchdog.tick(|| self.context.shards.have_answered());
        self.show_progress(observer);
    }

    fn show_progress(&mut self, observer: &mut dyn Observer) {
        let now = Instant::now();
        let progress = self.context.shards.progress();
        let (before, events) = self.shown;
        let passed = now.duration_since(before).as_secs_f64().max(f64::EPSILON);
        self.shown = (now, progress.events);
        observer.progress(&Progress {
            elapsed: now.duration_since(self.context.clock.start),
            left: self.deadline.map(|deadline| deadline.saturating_duration_since(now)),
            live: progress.live,
            events: progress.events,
            events_per_second: progress.events.saturating_sub(events) as f64 / passed,
            lost: progress.lost + self.context.losses.total(),
        });
    }

    /// Closes unused files and evicts unwind tables, if there are too many of them. With `deleted`, closes unused deleted files
    /// too. All mmap events must be applied.
    fn evict_objects(&mut self, deleted: bool) {
        let Context { kernel, probes, tracker, tables, recorder, .. } = &mut self.context;
        // Stacks that wait for unwind tables refer to objects by their handles, so no file is closed meanwhile.
        let closed = match tables.is_waiting() {
            true => HashSet::new(),
            false => {
                let recorded = recorder.iter().flat_map(Recorder::objects);
                let in_use = self.ended.objects().chain(recorded).chain(self.parts.objects());
                tracker.close_unused_files(deleted, in_use)
            }
        };
        self.ended.forget_files(&closed);
        if let Some(recorder) = recorder {
            recorder.forget_files(&closed);
        }
        self.parts.forget_files(&closed);
        tables.evict(kernel, tracker, &closed);
        probes.remove_objects(&closed);
        kernel.forget_sampled(&closed);
        self.postponed.forget_files(&closed);
    }

    /// Returns the traced processes that run.
    pub(super) fn running(&self) -> BTreeSet<Pid> {
        let tracker = &self.context.tracker;
        let pids = tracker.images().keys().map(|id| id.pid);
        pids.filter(|pid| tracker.is_traced(*pid)).collect()
    }

    /// Probes newly mapped allocators, then lets stopped images run. Publishes the unwind tables of newly mapped objects.
    fn update_mappings(&mut self, observer: &mut dyn Observer) {
        let Context { kernel, tracker, tables, targets, .. } = &mut self.context;
        let stopped = targets.take_stopped_images();
        tables.serve(kernel, tracker);
        let copies = tables.stack_copies();
        let Changes { allocators, remapped } = tracker.poll();
        for new in allocators {
            self.probe(new, observer);
        }
        while let Some(postponed) = self.postponed.take_due(Instant::now()) {
            self.probe(postponed, observer);
        }
        let Context { kernel, probes, tracker, tables, targets, .. } = &mut self.context;
        for object in kernel.attach_waiting(probes, Instant::now()) {
            tracker.allocators.set_attached(&object);
        }
        generated_code::add_of(tracker, &remapped);
        // The BPF programs cache the mappings of a process. After a change, the cached mappings may
        // be stale.
        remapped.into_iter().for_each(|pid| kernel.unwind_maps().forget_process(pid));
        targets.resume(&stopped, tracker);
        tables.finish_walks(kernel, tracker, copies);
        self.evict_objects(false);
    }

    /// Probes an allocator that a process has newly mapped.
    fn probe(&mut self, new: (Pid, Allocator), observer: &mut dyn Observer) {
        let Context { targets, tracker, kernel, probes, filter, complete, sampling, late_allocators, .. } =
            &mut self.context;
        if sampling.is_some() && late_allocators.len() < MAX_LATE_ALLOCATORS {
            late_allocators.push((new.0, new.1.object.path.clone()));
        }
        let is_selected = Selection::of(filter).contains(tracker, tracker.latest_id(new.0));
        let late = LateProbes::place(new, targets, tracker, kernel, probes, &mut self.postponed);
        let Some(LateProbes { is_complete, note }) = late else { return };
        *complete &= is_complete || !is_selected;
        if let Some(note) = note.filter(|_| is_selected)
            && targets.add_late_note(&note)
        {
            observer.note(&note);
        }
    }

    /// Records the intervals that ended at least [`SETTLED`] before `now`. The mmap events up to `now` are applied.
    fn record(&mut self, now: Tick, observer: &mut dyn Observer) {
        let Context { recorder: Some(recorder), tracker, tables, losses, .. } = &mut self.context else { return };
        let mut losses = losses.clone();
        losses.merge(&tracker.losses());
        let finished = tables.finished_stacks();
        recorder.record(now, earlier(now, SETTLED), tracker, &find_copy(finished), &losses);
        for mark in recorder.take_stored_marks() {
            observer.note(&format!("mark {} at {:.3} s", mark.text, mark.at.as_secs_f64()));
        }
    }

    /// Sets a mark for each function that was entered. If a mark is refused, because too many marks are not stored yet,
    /// the entry is counted as lost.
    fn mark_entered_functions(&mut self) {
        let requests = self.mark_functions.as_mut().map(MarkFunctions::take_requests).unwrap_or_default();
        let now = self.context.clock.now();
        let (Some(functions), Some(recorder)) = (&mut self.mark_functions, &mut self.context.recorder) else { return };
        for request in requests {
            if recorder.add_mark(request) {
                self.context.shards.mark(now);
            } else {
                functions.add_lost();
            }
        }
    }

    /// Sets a mark, which ends the interval now.
    fn mark(&mut self, request: MarkRequest, observer: &mut dyn Observer) {
        let Some(request) = self.parts.mark(request, &mut self.context, observer) else { return };
        let Context { recorder, shards, clock, .. } = &mut self.context;
        match recorder.as_mut().filter(|recorder| recorder.keeps_marks()) {
            None => observer.note(
                "no mark is set, since neither a recording nor an output shows it; --record FILE records the run",
            ),
            Some(recorder) => {
                // A request by the signal gets no answer, so show the refusal.
                let is_signal = request.reply.is_none();
                if recorder.add_mark(request) {
                    shards.mark(clock.now());
                } else if is_signal {
                    observer.note("no mark is set: too many others are not stored yet, or the recording has 100,000");
                }
            }
        }
    }
}
