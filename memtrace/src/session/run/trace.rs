//! A run in progress: probes, shards and the tracking of processes.

mod accounts;
mod activity;
mod finish;
mod mappings;
mod overhead;
mod recording;
mod sites;

use std::collections::{BTreeSet, HashSet};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::accounts::RunAccounts;
use super::activity::RunActivity;
use super::cost::processor_time;
use super::ended_images::{self, Completion, EndedImages};
use super::mark_functions::MarkFunctions;
use super::marks::MarkSource;
use super::memory;
use super::periodic_sites::PeriodicSites;
use super::recorder::Recorder;
use super::ring_source::RingSource;
use super::selection::Selection;
use super::setup;
use super::setup::Setup;
use super::target_time::TargetTime;
use super::wait::{Due, WakeupSources};
use super::{tag_functions, tag_probes};
use crate::history::facts;
use crate::kernel::{self, Kernel, Probes, ProcessFilter};
use crate::ledger;
use crate::model::format;
use crate::model::{AccountColumn, EventClass, Pid, Requirement, Tick};
use crate::pipeline::{Shards, Sinks};
use crate::session::clock;
use crate::session::config::{AccountReport, Config};
use crate::session::error::{Error, from_engines};
use crate::session::observer::{Observer, Progress};
use crate::session::overhead::OverheadMonitor;
use crate::session::sample::{PageReader, ReclaimReader};
use crate::session::select::Targets;
use crate::session::track::{Coverage, ProcessTracker, generated_code};
use crate::session::unwind_tables::UnwindTables;

/// The most processes in each shard.
const MAX_PROCESSES: u32 = 1 << 18;

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
    /// Finds the targets, attaches the probes and starts to count events. `observer` gets the estimated overhead before
    /// that.
    ///
    /// # Errors
    ///
    /// Probes that are in place are removed when this returns.
    pub(super) fn start(config: &Config, observer: &mut dyn Observer) -> Result<Self, Error> {
        kernel::features::require().map_err(|error| from_engines::kernel(None, error))?;
        let (clock_start, clock_instant) = (clock::monotonic(), Instant::now());
        let (plan, note) = memory::plan(config, setup::rings(config))?;
        let (parts, user_hooks) = (config.parts(), config.user_hooks.clone());
        let mut tracker = ProcessTracker::new(clock_start, parts, user_hooks, plan.mmap_ring, plan.registry);
        let probe_site = config.follows(EventClass::probes_allocators).then_some(config.probe_site);
        let (targets, allocators) = Targets::find(&config.target, probe_site, &mut tracker)?;
        let recorder = Recorder::create(config, setup::rings(config) as usize, clock_instant, &plan)?;
        let (mut recorder, deltas) = recorder.unzip();
        let setup = Setup::load(config, &plan, clock_start, &targets, &allocators, &mut tracker)?;
        let Setup { mut probes, own_probes, mut kernel, readers, filter, estimate, overhead } = setup;
        let settings = ledger::Settings {
            blocks: plan.live,
            stacks: plan.stacks,
            processes: MAX_PROCESSES,
            track_peak: config.keeps_peaks(),
            older: config.older,
            lifetimes: config.lifetimes,
            parts: config.parts(),
            accounts: config.accounts.as_ref().map(AccountReport::parts),
        };
        let accounts = config.accounts.as_ref();
        let (accounts, account_sink) = accounts
            .map(|report| RunAccounts::new(report, config.grouping.tags.as_ref(), plan.history_limit(config)))
            .unzip();
        let sources: Vec<_> = readers.into_iter().map(RingSource).collect();
        let rings = sources.len();
        let (sink, parts) = ended_images::channel();
        let shards = Shards::start(
            sources,
            settings,
            &config.events,
            &Sinks { ended: Some(sink), deltas, accounts: account_sink },
        )
        .map_err(|error| Error::Failed(error.to_string()))?;
        let removed = kernel.take_removed_cgroups().map_err(|error| from_engines::kernel(None, error))?;
        tracker.owners.name_cgroups(removed);
        let (copies, frame_data) = (plan.copies, plan.frame_data);
        let tables = UnwindTables::prepare(config, &mut kernel, &targets, &mut tracker, copies, frame_data)?;
        tag_functions::attach(&mut kernel, &mut probes, config, &targets, &tracker)?;
        tag_probes::attach(&mut kernel, &mut probes, &config.tag_probes, &targets, &tracker)?;
        let mut activity = RunActivity::attach(&mut kernel, &mut probes, config, &targets, &tracker)?;
        for allocator in &allocators {
            let placed = allocator.place(&mut kernel, &mut probes);
            placed.map_err(|error| from_engines::kernel(Some(allocator.pid), error))?;
        }
        let mark_functions = config.recording.iter().flat_map(|recording| &recording.mark_functions);
        let mark_functions = MarkFunctions::attach(&mut kernel, mark_functions, &targets)?;
        kernel.open().map_err(|error| from_engines::kernel(None, error))?;
        tracker.start_at(clock::monotonic());
        generated_code::add_running(&mut tracker);
        // A command's pages from before its exec belong to memtrace.
        let running = targets.ran_before().then(|| tracker.running()).into_iter().flatten();
        let pages = PageReader::start(config, running);
        let reclaim = ReclaimReader::start(config);
        if let Some(pid) = targets.first_exited() {
            return Err(Error::Ended { pid });
        }
        for line in note.iter().chain(&estimate) {
            observer.note(line);
        }
        let untraced = match targets.ran_before() {
            true => coverage(&filter, &mut tracker).count(&config.events),
            false => 0,
        };
        let start = Instant::now();
        let start_tick = Tick::at(clock::monotonic().saturating_sub(clock_start));
        if let Some(activity) = &mut activity {
            activity.start(start_tick.since_start());
        }
        if let Some(recorder) = &mut recorder {
            // Touches are not recorded.
            let metric = config.metric.filter(|metric| !metric.needs(Requirement::Touches));
            let recorded = facts::at_start(&targets.name, start_tick, &config.grouping.to_recorded(), metric);
            let of_accounts = config.accounts.as_ref().map(|report| facts::of_accounts(&report.keys));
            let of_slices = activity.as_ref().and_then(RunActivity::fact);
            recorder.start(start_tick, recorded.into_iter().chain(of_accounts).chain(of_slices));
        }
        let mut trace = Self {
            kernel,
            probes,
            own_probes,
            shards,
            tracker,
            tables,
            reclaim,
            pages,
            targets,
            filter,
            clock_start,
            start,
            start_tick,
            ended: EndedImages::new(parts, rings, plan.of_ended(config.keep_ended, start_tick)),
            classes: config.events.clone(),
            cpu_at_start: processor_time(),
            shown: (start, 0),
            ticks: 0,
            complete: true,
            untraced,
            overhead,
            target_time: TargetTime::default(),
            recorder,
            periodic_sites: config.every.map(PeriodicSites::start).transpose()?,
            mark_functions,
            activity,
            top: config.top,
            accounts,
            sort: config.accounts.as_ref().map(|accounts| accounts.sort).unwrap_or_default(),
        };
        trace.measure_overhead(observer);
        Ok(trace)
    }

    /// Returns the descriptors and notifications to wait for during the run.
    pub(super) fn wakeup_sources(&mut self) -> Result<WakeupSources, Error> {
        let failed = |error| Error::Failed(format!("cannot wait for the targets: {error}"));
        Ok(WakeupSources {
            pidfds: self.targets.pidfds().map_err(failed)?,
            table_requests: self.tables.requests_fd(),
            table_built: self.tables.ready(),
            // A new allocator has to be probed before it returns many blocks. If the kernel cannot look up VMAs, stacks
            // in new mappings need their tables soon too.
            // The ring of activity is read then too.
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
}

/// Returns the coverage of the processes that the BPF programs select.
fn coverage(filter: &ProcessFilter, tracker: &mut ProcessTracker) -> Coverage {
    let selection = Selection::of(filter);
    Coverage::of(tracker, &|tracker, id| selection.contains(tracker, id))
}
