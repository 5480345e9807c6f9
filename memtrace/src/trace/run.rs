//! A run in progress: probes, shards and the tracking of processes.

mod accounts;
mod finish;
pub(super) mod start;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use memtrace_history::Fact;
use memtrace_history::pipeline::Shards;
use memtrace_host::kernel::{Kernel, Probes, ProcessFilter};
use memtrace_model::{AccountColumn, EventClass, LossReason, Losses, Pid, Tick, format};
use memtrace_object::allocators::Allocator;

use self::accounts::fitting_text;
use super::accounts::RunAccounts;
use super::activity::RunActivity;
use super::activity_changes::RecordedChanges;
use super::ended_images::{Completion, EndedImages, SETTLED, earlier};
use super::mark_functions::MarkFunctions;
use super::marks::MarkSource;
use super::periodic_sites::{PeriodicSites, TopSites};
use super::recorder::Recorder;
use super::stack_copies::find_copy;
use super::target_time::TargetTime;
use super::wait::{Due, WakeupSources};
use crate::run_kit::clock;
use crate::run_kit::error::Error;
use crate::run_kit::marks::MarkRequest;
use crate::run_kit::observer::{Observer, Progress};
use crate::targets::select::Selection;
use crate::targets::select::{LateProbes, Targets};
use crate::targets::track::{Changes, Coverage, ProcessTracker, generated_code};
use crate::targets::unwind_tables::UnwindTables;
use crate::trace::overhead::{OverheadMonitor, Sample};
use crate::trace::sample::{PageReader, ReclaimReader};

/// Durations of calls are read for a recording in one tick of this number: each second.
const CALLS_READ_EVERY: u32 = 10;

/// BPF programs are timed in one tick of this number, since timing costs time itself.
const TIMED_EVERY: u32 = 10;

/// Perf maps are opened in one tick of this number: a program in a container can take its map along when it exits.
const OPENED_EVERY: u32 = 5;

/// Deleted files that nothing uses are closed in one tick of this number: every five seconds. A file is in use until its
/// process has been completed, so the number of opened files does not tell when there are too many.
const DELETED_EVERY: u32 = 50;

/// A run in progress. Dropping it removes its probes.
pub(super) struct Trace {
    kernel: Kernel,
    probes: Probes,
    /// Probes in memtrace itself, which measured the cost of a probe. They are removed with the others, since that
    /// takes a while.
    own_probes: Probes,
    shards: Shards,
    ended: EndedImages,
    classes: Vec<EventClass>,
    tracker: ProcessTracker,
    tables: UnwindTables,
    /// `None` if reclaim events are not traced.
    reclaim: Option<ReclaimReader>,
    /// `None` if neither page faults nor mappings are traced.
    pages: Option<PageReader>,
    targets: Targets,
    filter: ProcessFilter,
    /// Origin of ticks on the monotonic clock.
    clock_start: Duration,
    start: Instant,
    start_tick: Tick,
    /// Processor time of memtrace at the start.
    cpu_at_start: Duration,
    /// Time and number of events of the last progress report.
    shown: (Instant, u64),
    ticks: u32,
    complete: bool,
    /// Number of untraced processes in scope when the probes were in place.
    untraced: usize,
    /// `None` if the overhead is not measured.
    overhead: Option<OverheadMonitor>,
    target_time: TargetTime,
    /// Facts that were known at the start.
    facts: Vec<Fact>,
    /// `None` if the run is not recorded, and no sites are shown during it.
    recorder: Option<Recorder>,
    /// `None` if no sites are shown during the run.
    periodic_sites: Option<PeriodicSites>,
    /// `None` if no function sets marks.
    mark_functions: Option<MarkFunctions>,
    /// `None` if the activity of threads is not traced.
    activity: Option<RunActivity>,
    /// Number of sites, or of accounts, that are shown.
    top: usize,
    /// `None` if no accounts are kept.
    accounts: Option<RunAccounts>,
    /// Column by which accounts are sorted.
    sort: AccountColumn,
}

impl Trace {
    /// Returns the descriptors and notifications to wait for during the run.
    pub(super) fn wakeup_sources(&mut self) -> Result<WakeupSources, Error> {
        let failed = |error| Error::Failed(format!("cannot wait for the targets: {error}"));
        Ok(WakeupSources {
            pidfds: self.targets.pidfds().map_err(failed)?,
            table_requests: self.tables.requests_fd(),
            table_built: self.tables.ready(),
            // A new allocator has to be probed before it returns many blocks. The ring of activity is read then too.
            polls_mappings: self.has_frequent_work(),
        })
    }

    /// Lets the command run, if there is one.
    pub(super) fn release_command(&mut self) -> Result<(), Error> {
        self.targets.release()
    }

    /// Describes the targets and probes, and the number of untraced processes: `to pid 4711 (redis-server), 12 probes`.
    pub(super) fn description(&self) -> String {
        let untraced = match self.untraced {
            0 => String::new(),
            some => format!(", {} not traced", format::counted(some as u64, "process", "processes")),
        };
        format!("to {}, {} probes{untraced}", self.targets.name, self.probes.len())
    }

    /// Returns a descriptor that is readable if functions that set marks were entered.
    pub(super) fn mark_descriptor(&self) -> Option<RawFd> {
        self.mark_functions.as_ref().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.targets.notes
    }

    pub(super) fn handle(&mut self, due: Due, observer: &mut dyn Observer) {
        match due {
            Due::Mappings => {
                self.update_mappings(observer);
                self.read_activity();
            }
            Due::Tick => self.tick(observer),
            Due::Mark(MarkSource::Request(request)) => self.mark(request, observer),
            Due::Mark(MarkSource::Functions) => self.mark_entered_functions(),
        }
    }

    fn tick(&mut self, observer: &mut dyn Observer) {
        self.ticks = self.ticks.wrapping_add(1);
        self.kernel.time_programs(self.ticks % TIMED_EVERY == 1);
        let now = self.now();
        self.update_mappings(observer);
        let losses = self.kernel.counters().losses;
        self.update_accounts(&losses, observer);
        self.read_activity();
        self.complete_ended(now);
        self.record(now, &losses, observer);
        if self.ticks.is_multiple_of(OPENED_EVERY) {
            self.tracker.code_generators.open_perf_maps();
        }
        if self.ticks.is_multiple_of(DELETED_EVERY) {
            self.evict_objects(true);
        }
        self.kernel.flush_log();
        let now = Instant::now();
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.tick(now, &self.kernel);
        }
        self.measure_overhead(observer);
        self.show_sites(now, observer);
        let progress = self.shards.progress();
        let (before, events) = self.shown;
        let passed = now.duration_since(before).as_secs_f64().max(f64::EPSILON);
        self.shown = (now, progress.events);
        observer.progress(&Progress {
            elapsed: now.duration_since(self.start),
            live: progress.live,
            events: progress.events,
            events_per_second: progress.events.saturating_sub(events) as f64 / passed,
            lost: progress.lost + losses.total(),
        });
    }

    /// Closes files that no process has mapped, and evicts unwind tables, if there are too many. With `deleted`, deleted
    /// files are closed too. All mmap events are applied.
    fn evict_objects(&mut self, deleted: bool) {
        // Stacks that wait for tables refer to objects by their handles.
        let closed = match self.tables.is_waiting() {
            true => HashSet::new(),
            false => {
                let recorded = self.recorder.iter().flat_map(Recorder::objects);
                let of_waits = self.activity.iter().flat_map(RunActivity::objects);
                self.tracker.close_unused_files(deleted, self.ended.objects().chain(recorded).chain(of_waits))
            }
        };
        self.ended.forget_files(&closed);
        if let Some(recorder) = &mut self.recorder {
            recorder.forget_files(&closed);
        }
        if let Some(activity) = &mut self.activity {
            activity.forget_files(&closed);
        }
        self.tables.evict(&mut self.kernel, &self.tracker, &closed);
        self.probes.remove_objects(&closed);
    }

    fn now(&self) -> Tick {
        Tick::at(clock::monotonic().saturating_sub(self.clock_start))
    }

    /// Completes the images that ended before `now`. The mmap events up to then are applied.
    fn complete_ended(&mut self, now: Tick) {
        let mut completion = Completion {
            tracker: &mut self.tracker,
            tables: &mut self.tables,
            pages: self.pages.as_ref(),
            filter: &self.filter,
            classes: &self.classes,
            start: self.start_tick,
            recorder: self.recorder.as_mut(),
            accounts: self.accounts.as_mut(),
        };
        self.ended.complete(now, &self.shards, &mut completion);
        if let Some(age) = self.recorder.as_mut().and_then(Recorder::take_deferral) {
            self.shards.defer_stacks(age);
        }
        self.target_time.add_exits(self.ended.take_exits(), &self.targets, &self.filter);
    }

    /// Returns the traced processes that run.
    pub(super) fn running(&self) -> BTreeSet<Pid> {
        let pids = self.tracker.images().keys().map(|id| id.pid);
        pids.filter(|pid| self.tracker.is_traced(*pid)).collect()
    }

    /// Probes newly mapped allocators, and publishes the unwind tables of newly mapped objects.
    fn update_mappings(&mut self, observer: &mut dyn Observer) {
        self.tables.serve(&mut self.kernel, &mut self.tracker);
        let copies = self.tables.stack_copies();
        let Changes { allocators, remapped } = self.tracker.poll();
        for (pid, allocator) in allocators {
            self.probe(pid, &allocator, observer);
        }
        generated_code::add_of(&mut self.tracker, &remapped);
        // The BPF programs cache mappings of a process, which may be stale.
        remapped.into_iter().for_each(|pid| self.kernel.unwind_maps().forget_process(pid));
        self.tables.finish_walks(&mut self.kernel, &self.tracker, copies);
        self.evict_objects(false);
    }

    /// Probes an allocator that `pid` has newly mapped.
    fn probe(&mut self, pid: Pid, allocator: &Allocator, observer: &mut dyn Observer) {
        let is_selected = Selection::of(&self.filter).contains(&self.tracker, self.tracker.latest_id(pid));
        let Self { targets, tracker, kernel, probes, .. } = self;
        let Some(late) = LateProbes::place(pid, allocator, targets, tracker, kernel, probes) else { return };
        self.complete &= late.are_placed || !is_selected;
        if is_selected && self.targets.add_late_note(&late.note) {
            observer.note(&late.note);
        }
    }

    /// Returns true if mappings or the ring of activity have to be read every few milliseconds.
    fn has_frequent_work(&self) -> bool {
        self.targets.probe_site.is_some() || self.activity.is_some()
    }

    /// Reads the activity of threads. The mmap events up to now are applied.
    fn read_activity(&mut self) {
        let Some(activity) = &mut self.activity else { return };
        let mut changes = activity.read(&mut self.tracker, &find_copy(self.tables.finished_stacks()));
        if self.recorder.as_ref().is_some_and(Recorder::is_viewed) && self.ticks.is_multiple_of(CALLS_READ_EVERY) {
            changes.calls = activity.take_calls(&self.kernel);
        }
        self.record_activity(changes);
    }

    /// Ends the activity of threads at the end of the trace.
    fn finish_activity(&mut self, end: Tick) {
        let Some(activity) = &mut self.activity else { return };
        let finished = self.tables.finished_stacks();
        let end = end.since_start();
        let changes = activity.finish(end, &self.kernel, &mut self.tracker, &find_copy(finished));
        self.record_activity(changes);
    }

    fn record_activity(&mut self, changes: RecordedChanges) {
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
            recorder.add_activity(changes, &mut self.tracker, &find_copy(self.tables.finished_stacks()));
        }
    }

    /// Adds the changes of accounts, asks for new ones, and shows the table if it is due. `losses` are losses of the
    /// BPF programs.
    fn update_accounts(&mut self, losses: &Losses, observer: &mut dyn Observer) {
        let Some(accounts) = &mut self.accounts else { return };
        accounts.receive(&mut self.tracker);
        accounts.note_resets(observer);
        let members = accounts.take_members();
        if !members.is_empty() {
            self.shards.group_accounts(members);
        }
        self.shards.send_accounts();
        let now = Instant::now();
        if accounts.is_due(now) {
            accounts.name_tags(&self.kernel.tags());
            let mut table = accounts.table(self.start_tick, now.duration_since(self.start), &self.tracker);
            table.losses.merge(losses);
            table.losses.merge(&self.tracker.losses());
            table.sort(self.sort);
            let lines = observer.table_size().map(|size| size.lines);
            observer.table(&fitting_text(&table, self.top, lines));
        }
    }

    /// Starts new water marks.
    fn reset_accounts(&mut self, request: MarkRequest, observer: &mut dyn Observer) {
        let Some(accounts) = &mut self.accounts else { return };
        let is_signal = request.reply.is_none();
        match accounts.reset_marks(self.start.elapsed(), request) {
            Ok(number) => self.shards.split_accounts(number, self.now()),
            Err(reason) if is_signal => observer.note(&format!("no new water marks: {reason}")),
            Err(_) => {}
        }
    }

    /// Records the intervals that ended before `now`. The mmap events up to then are applied. `losses` are losses of the
    /// BPF programs.
    fn record(&mut self, now: Tick, losses: &Losses, observer: &mut dyn Observer) {
        let Some(recorder) = &mut self.recorder else { return };
        let finished = self.tables.finished_stacks();
        let mut losses = losses.clone();
        losses.merge(&self.tracker.losses());
        let mut settled = earlier(now, SETTLED);
        if let Some(accounts) = &mut self.accounts {
            accounts.receive(&mut self.tracker);
            recorder.add_accounts(accounts.take_intervals());
            // The accounts of an interval are recorded with its delta.
            settled = accounts.recorded_until().map_or(settled, |until| until.min(settled));
        }
        recorder.record(now, settled, &mut self.tracker, &find_copy(finished), &losses);
        // A reset of accounts has a note of its own.
        let are_resets = self.accounts.is_some() && !recorder.has_file();
        for mark in recorder.take_stored_marks().iter().filter(|_| !are_resets) {
            observer.note(&format!("mark {} at {:.3} s", mark.text, mark.at.as_secs_f64()));
        }
    }

    /// Sets a mark for each function that was entered. Entries that wait for others to be stored get none, and are counted.
    fn mark_entered_functions(&mut self) {
        let requests = self.mark_functions.as_mut().map(MarkFunctions::take_requests).unwrap_or_default();
        let now = self.now();
        let (Some(functions), Some(recorder)) = (&mut self.mark_functions, &mut self.recorder) else { return };
        for request in requests {
            if recorder.add_mark(request) {
                self.shards.mark(now);
            } else {
                functions.add_lost();
            }
        }
    }

    /// Sets a mark: the interval ends now. A trace with accounts starts new water marks then.
    fn mark(&mut self, request: MarkRequest, observer: &mut dyn Observer) {
        if self.accounts.is_some() {
            if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_viewed()) {
                let mark = MarkRequest { text: request.text.clone(), reply: None };
                if recorder.add_mark(mark) {
                    self.shards.mark(self.now());
                }
            }
            return self.reset_accounts(request, observer);
        }
        match self.recorder.as_mut().filter(|recorder| recorder.keeps_marks()) {
            None => observer.note(
                "no mark is set, since neither a recording nor an output shows it; --record FILE records the run",
            ),
            Some(recorder) => {
                // Nobody else learns that a mark by the signal is refused.
                let is_signal = request.reply.is_none();
                if recorder.add_mark(request) {
                    self.shards.mark(self.now());
                } else if is_signal {
                    observer.note("no mark is set: too many others are not stored yet, or the recording has 100,000");
                }
            }
        }
    }

    /// Measures the overhead if a period is over, and warns once if it is high.
    fn measure_overhead(&mut self, observer: &mut dyn Observer) {
        if self.overhead.as_ref().is_some_and(|overhead| overhead.is_due(Instant::now())) {
            let sample = self.overhead_sample();
            let messages = self.overhead.as_mut().map(|overhead| overhead.update(sample)).unwrap_or_default();
            messages.iter().for_each(|message| observer.note(message));
        }
    }

    fn overhead_sample(&mut self) -> Sample {
        let (processor_time, missing) = self.target_time.read(&self.targets, &self.filter, &self.tracker);
        let counters = self.kernel.counters();
        Sample {
            at: Instant::now(),
            calls: self.shards.progress().calls,
            not_recorded: counters.filtered.count + counters.losses.get(LossReason::RingFullAlloc),
            processor_time,
            missing,
        }
    }

    /// Shows the top sites if their interval is over.
    fn show_sites(&mut self, now: Instant, observer: &mut dyn Observer) {
        let (Some(periodic), Some(recorder)) = (&mut self.periodic_sites, &self.recorder) else { return };
        if let Some(text) = periodic.take_text() {
            observer.summary(&text);
        }
        if periodic.is_due(now) {
            let elapsed = now.saturating_duration_since(self.start);
            periodic.request(TopSites { elapsed, classes: recorder.top_sites(self.top) });
        }
    }
}

/// Returns the coverage of the processes that the BPF programs select.
fn coverage(filter: &ProcessFilter, tracker: &mut ProcessTracker) -> Coverage {
    let selection = Selection::of(filter);
    Coverage::of(tracker, &|tracker, id| selection.contains(tracker, id))
}
