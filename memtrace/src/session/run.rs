//! One run, from its configuration to its report.

mod cost;
mod detach;
mod reports;
mod ring_source;
mod setup;
mod wait;

use std::time::{Duration, Instant};

use self::detach::Leaving;
use self::reports::{Reports, Told};
use self::ring_source::RingSource;
use self::setup::Loaded;
use self::wait::{Due, Signals, Stop};
use super::config::Config;
use super::error::{Error, from_engines};
use super::observer::{Observer, Progress};
use super::outcome::Outcome;
use super::sample::{PageReader, ReclaimReader};
use super::select::{Site, Subject};
use super::track::{Followed, News};
use super::unwind_tables::Tables;
use super::{clock, malloc_trim};
use crate::allocators::Allocator;
use crate::kernel::{self, Kernel, Probes, ProcessFilter};
use crate::ledger;
use crate::model::{EventClass, LossReason, Losses, Metric, Pid, Tick};
use crate::pipeline::{Books, Shards};

/// So many stacks each shard may hold, and so many processes.
const MAX_STACKS: u32 = 1 << 20;
const MAX_PROCESSES: u32 = 1 << 18;

/// The programs are timed during one tick of so many: timing is a cost of its own.
const TIMED_EVERY: u32 = 10;

/// Traces as `config` says, and writes the report.
///
/// # Errors
///
/// Until the first probe is in place whatever is wrong ends the run. Afterwards only what keeps the report from being
/// written does; all else shows in the outcome.
pub fn run(config: &Config, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    malloc_trim::prepare();
    let reports = Reports::open(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot wait for signals: {error}")))?;
    runtime.block_on(async {
        let mut signals =
            Signals::listen().map_err(|error| Error::Failed(format!("cannot listen to signals: {error}")))?;
        let mut trace = Trace::begin(config)?;
        for expected in &trace.subject.expected {
            observer.note(expected);
        }
        observer.attached(&trace.attached());
        for note in &trace.subject.notes {
            observer.note(note);
        }
        trace.subject.release()?;
        let pidfds = trace.subject.pidfds().map_err(|error| Error::Failed(format!("cannot hold on: {error}")))?;
        // An allocator is to be probed before it hands out much, and where the kernel cannot be asked what is mapped, tables
        // wait for it too.
        let hurries = trace.subject.probe_site.is_some() || !trace.kernel.tables().finds_mappings();
        let news = wait::News::listen(trace.tables.wanted_fd(), trace.tables.ready(), hurries)
            .map_err(|error| Error::Failed(format!("cannot wait for the kernel half: {error}")))?;
        let stop = wait::wait(&mut signals, config.duration, pidfds, news, |due| trace.due(due, observer))
            .await
            .map_err(|error| Error::Failed(format!("cannot wait: {error}")))?;
        observer.note(match stop {
            Stop::Signal => "stopped",
            Stop::Duration => "the time is up",
            Stop::TargetsEnded => "everything that was traced has ended",
        });
        let (outcome, leaving) = trace.finish(config, reports, observer)?;
        leaving.wait(&mut signals, observer).await;
        Ok(outcome)
    })
}

/// A run in progress. Whatever it placed goes when it is dropped.
struct Trace {
    kernel: Kernel,
    probes: Probes,
    /// Those in memtrace itself, by which the price of a probe was measured. Removing them takes a while, so they go with
    /// the others.
    own_probes: Probes,
    shards: Shards,
    followed: Followed,
    tables: Tables,
    /// Counts what the machine does to find memory; `None` where that is not followed.
    reclaim: Option<ReclaimReader>,
    /// Reads what is resident; `None` where page faults are not followed.
    pages: Option<PageReader>,
    subject: Subject,
    selection: ProcessFilter,
    /// The monotonic clock from which ticks are counted.
    clock_start: Duration,
    opened: Instant,
    opened_at: Tick,
    shown: (Instant, u64),
    ticks: u32,
    complete: bool,
    /// How often somebody had an allocator before it was probed.
    late: Losses,
}

impl Trace {
    /// Finds who is to be traced, places the probes, and lets events count.
    fn begin(config: &Config) -> Result<Self, Error> {
        kernel::features::require().map_err(|error| from_engines::kernel(None, error))?;
        let clock_start = clock::monotonic();
        let mut followed = Followed::new(clock_start, config.by.parts(), config.wanted.clone());
        let probes_allocators = config.follows(EventClass::probes_allocators);
        let probe_site = probes_allocators.then_some(config.probe_site);
        let (mut subject, sites) = Subject::find(&config.target, probe_site, &mut followed)?;
        let loaded = Loaded::load(config, clock_start, &mut subject, &sites, &mut followed)?;
        let Loaded { mut probes, own_probes, mut kernel, readers, selection } = loaded;
        let settings = ledger::Settings {
            blocks: config.max_live,
            stacks: MAX_STACKS,
            processes: MAX_PROCESSES,
            track_peak: config.metric == Metric::PeakBytes,
            older: config.older,
            parts: config.by.parts(),
        };
        let shards = Shards::start(readers.into_iter().map(RingSource).collect(), settings, &config.events)
            .map_err(|error| Error::Failed(error.to_string()))?;
        let tables = Tables::prepare(config, &mut kernel, &subject, &followed)?;
        for site in &sites {
            site.place(&mut kernel, &mut probes).map_err(|error| from_engines::kernel(Some(site.pid), error))?;
        }
        kernel.open().map_err(|error| from_engines::kernel(None, error))?;
        followed.begin_at(clock::monotonic());
        // What a command has before it begins is memtrace's own.
        let running = subject.is_running().then(|| followed.running()).into_iter().flatten();
        let pages = PageReader::begin(config, running);
        let reclaim = ReclaimReader::begin(config);
        if let Some(pid) = subject.first_ended() {
            return Err(Error::Ended { pid });
        }
        let opened = Instant::now();
        let opened_at = Tick::at(clock::monotonic().saturating_sub(clock_start));
        let shown = (opened, 0);
        Ok(Self {
            kernel,
            probes,
            own_probes,
            shards,
            followed,
            tables,
            reclaim,
            pages,
            subject,
            selection,
            clock_start,
            opened,
            opened_at,
            shown,
            ticks: 0,
            complete: true,
            late: Losses::default(),
        })
    }

    fn attached(&self) -> String {
        format!("to {}, {} probes", self.subject.name, self.probes.len())
    }

    fn due(&mut self, due: Due, observer: &mut dyn Observer) {
        match due {
            Due::Mappings => self.follow(observer),
            Due::Everything => self.tick(observer),
        }
    }

    /// What is due a few times a second.
    fn tick(&mut self, observer: &mut dyn Observer) {
        self.ticks = self.ticks.wrapping_add(1);
        self.kernel.time_programs(self.ticks % TIMED_EVERY == 1);
        self.follow(observer);
        self.kernel.flush_log();
        let now = Instant::now();
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.tick(now, &self.kernel);
        }
        let progress = self.shards.progress();
        let (before, events) = self.shown;
        let passed = now.duration_since(before).as_secs_f64().max(f64::EPSILON);
        self.shown = (now, progress.events);
        observer.progress(&Progress {
            elapsed: now.duration_since(self.opened),
            live: progress.live,
            events: progress.events,
            events_per_second: progress.events.saturating_sub(events) as f64 / passed,
            lost: progress.lost + self.kernel.counters().losses.total(),
        });
    }

    /// Takes up what the targets have mapped: probes allocators among it, and has stacks through it walked by tables.
    fn follow(&mut self, observer: &mut dyn Observer) {
        self.tables.give(&mut self.kernel, &mut self.followed);
        let News { allocators, late, changed } = self.followed.poll();
        if self.subject.probe_site.is_some() {
            let late = late.into_iter().filter(|&pid| self.is_chosen(pid)).count();
            self.late.add(LossReason::AllocatorLate, late as u64);
        }
        for (pid, allocator) in allocators {
            self.probe(pid, &allocator, observer);
        }
        self.tables.update(&mut self.kernel, &self.followed, changed);
    }

    fn is_chosen(&self, pid: Pid) -> bool {
        is_chosen(&self.selection, &self.followed, pid)
    }

    /// Probes an allocator that `pid` has newly mapped.
    fn probe(&mut self, pid: Pid, allocator: &Allocator, observer: &mut dyn Observer) {
        let Some(probe_site) = self.subject.probe_site else { return };
        let matters = self.is_chosen(pid);
        let scope = self.subject.scope(pid);
        let number = self.followed.allocators.number(allocator);
        let Some(site) = Site::of(pid, scope, allocator, number, probe_site) else { return };
        let path = allocator.object.path.display();
        let placed = site.place(&mut self.kernel, &mut self.probes);
        self.complete &= placed.is_ok() || !matters;
        self.followed.allocators.placed(allocator);
        let how = placed.map_or_else(|error| error.to_string(), |()| String::from("probed from now on"));
        let note = format!("process {pid} has mapped another allocator, {path}: {how}");
        if matters {
            observer.note(&note);
            self.subject.notes.push(note);
        }
    }

    /// Lets no more events count, writes the reports, and removes the probes meanwhile.
    fn finish(
        mut self,
        config: &Config,
        reports: Reports,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, Leaving), Error> {
        if let Err(error) = self.kernel.close() {
            log::warn!("{error}");
            self.complete = false;
        }
        let duration = self.opened.elapsed();
        let now = Tick::at(clock::monotonic().saturating_sub(self.clock_start));
        self.follow(observer);
        self.kernel.flush_log();
        let counters = self.kernel.counters();
        let reclaim = self.reclaim.take().map(|reclaim| reclaim.end(&self.kernel));
        let programs = self.kernel.program_time();
        let Books { mut snapshots, events } =
            self.shards.finish(now).map_err(|error| Error::Failed(error.to_string()))?;
        malloc_trim::give_back();
        for snapshot in snapshots.0.values_mut() {
            snapshot.losses.merge(&counters.losses);
            snapshot.losses.merge(&self.followed.losses());
            snapshot.losses.merge(&self.late);
            self.followed.add_idle(snapshot);
            self.followed.look_again(snapshot);
        }
        if let Some(pages) = &self.pages {
            let is_chosen = |pid| is_chosen(&self.selection, &self.followed, pid);
            pages.settle(&mut snapshots, &self.followed, self.opened_at, &is_chosen);
        }
        let window = self.opened_at..now;
        self.probes.join(self.own_probes);
        // The target is let go while names are looked up.
        let leaving = Leaving::begin(self.probes);
        let told = Told {
            subject: &self.subject.name,
            notes: &self.subject.notes,
            followed: &self.followed,
            counters: &counters,
            programs: &programs,
            reclaim,
            events,
            window,
            duration,
        };
        let losses = reports.write(config, snapshots, told, observer)?;
        let command = self.subject.command_end();
        Ok((Outcome { losses, command, complete: self.complete }, leaving))
    }
}

/// Whether the kernel half chooses `pid`, as far as that is known.
fn is_chosen(selection: &ProcessFilter, followed: &Followed, pid: Pid) -> bool {
    let comm = followed.image(pid).map(|image| image.comm.as_str());
    selection.selects(pid, comm)
}
