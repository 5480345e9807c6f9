//! One run, from its configuration to its report.

use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use super::config::{Config, Destination, Output, Target};
use super::error::Error;
use super::followed::{Followed, News};
use super::leaving::Leaving;
use super::observer::{Observer, Progress};
use super::outcome::Outcome;
use super::outputs::Outputs;
use super::overhead::{self, Overhead};
use super::pages::PageReader;
use super::reclaim::ReclaimReader;
use super::ring_source::RingSource;
use super::subject::{Site, Subject};
use super::unwinding::Unwinding;
use super::wait::{self, Due, Signals, Stop};
use super::{cost, memory, selection, translate};
use crate::kernel::unwind::{Wanted, WantedReader};
use crate::kernel::{self, Kernel, Probes, RingReader, Selection};
use crate::ledger;
use crate::model::{Bytes, EventClass, LossReason, Losses, Metric, Parts, Pid, Profile, Tick};
use crate::pipeline::{Books, Shards};
use crate::report;
use crate::symbolize::Symbolizer;
use crate::unwind::{self, Cache};

/// So many stacks each shard may hold, and so many processes.
const MAX_STACKS: u32 = 1 << 20;
const MAX_PROCESSES: u32 = 1 << 18;

/// The programs are timed during one tick of so many: timing is a cost of its own.
const TIMED_EVERY: u32 = 10;

/// Where many processes are traced, so many objects have their unwind tables before events count, those of most use; the
/// others get theirs beside the run.
const AT_ONCE: usize = 48;

/// By default one shard a processor, but no more than this: one already takes millions of events in a second.
const DEFAULT_SHARDS: usize = 4;

/// Traces as `config` says, and writes the report.
///
/// # Errors
///
/// Until the first probe is in place whatever is wrong ends the run. Afterwards only what keeps the report from being
/// written does; all else shows in the outcome.
pub fn run(config: &Config, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    memory::prepare();
    let outputs = config.events.iter().map(|&class| Outputs::open(&output_of(config, class)).map(|open| (class, open)));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
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
        let news = wait::News::listen(trace.wanted_fd(), trace.unwinding.ready(), hurries)
            .map_err(|error| Error::Failed(format!("cannot wait for the kernel half: {error}")))?;
        let stop = wait::wait(&mut signals, config.duration, pidfds, news, |due| trace.due(due, observer))
            .await
            .map_err(|error| Error::Failed(format!("cannot wait: {error}")))?;
        observer.note(match stop {
            Stop::Signal => "stopped",
            Stop::Duration => "the time is up",
            Stop::TargetsEnded => "everything that was traced has ended",
        });
        let (outcome, leaving) = trace.finish(config, outputs, observer)?;
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
    unwinding: Unwinding,
    /// What the kernel half asks for; `None` where it does not.
    wanted: Option<WantedReader>,
    takes_stacks: bool,
    /// Counts what the machine does to find memory; `None` where that is not followed.
    reclaim: Option<ReclaimReader>,
    /// Reads what is resident; `None` where page faults are not followed.
    pages: Option<PageReader>,
    subject: Subject,
    selection: Selection,
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
    fn begin(config: &Config) -> Result<Self, Error> {
        kernel::features::require().map_err(|error| translate::kernel(None, error))?;
        let clock_start = cost::monotonic_clock();
        let mut followed = Followed::new(clock_start, config.by.parts(), config.wanted.clone());
        let probes_allocators = config.follows(EventClass::Heap);
        let probe_site = probes_allocators.then_some(config.probe_site);
        let (mut subject, sites) = Subject::find(&config.target, probe_site, &mut followed)?;
        let track_peak = config.metric == Metric::PeakBytes;
        let (selection, left_out) = selection::of(&config.target, config.events == [EventClass::Heap])?;
        let mut options = options(config, clock_start, selection);
        let mut probes = Probes::default();
        let mut own_probes = Probes::default();
        let pids: Vec<_> = subject.pids().collect();
        let (mut kernel, mut readers) = load(&options, &pids, &left_out)?;
        if subject.is_running() && probes_allocators {
            let takes_stacks = config.max_depth > 0;
            let prices = overhead::prices(&mut kernel, &mut own_probes, &mut followed, &sites, takes_stacks)?;
            let overhead = Overhead::measure(&mut kernel, &mut probes, &sites, &pids, prices)?;
            subject.expected.push(overhead::describe(overhead.foretell(options.min_size)));
            if let Some(limit) = config.max_overhead {
                let size = overhead.within(limit, options.min_size)?;
                if size > options.min_size {
                    subject.expected.push(format!("so as not to, only allocations of at least {size} are traced"));
                    // What the programs filter is fixed when they are loaded.
                    options.min_size = size;
                    probes = Probes::default();
                    (kernel, readers) = load(&options, &pids, &left_out)?;
                }
            }
        }
        let settings = ledger::Settings {
            blocks: config.max_live,
            stacks: MAX_STACKS,
            processes: MAX_PROCESSES,
            track_peak,
            older: config.older,
            parts: config.by.parts(),
        };
        let shards = Shards::start(readers.into_iter().map(RingSource).collect(), settings, &config.events)
            .map_err(|error| Error::Failed(error.to_string()))?;
        let mut unwinding = Unwinding::new(tables_cache());
        if config.max_depth > 0 {
            unwinding.begin(&mut kernel);
            unwinding.prepare(&mut kernel, subject.objects.iter());
            for &pid in &pids {
                if let Some(image) = followed.image(pid) {
                    unwinding.update(&mut kernel, pid, image);
                }
            }
            if matches!(config.target, Target::Selected(_)) {
                let objects = followed.by_use();
                let (first, later) = objects.split_at(objects.len().min(AT_ONCE));
                unwinding.prepare(&mut kernel, first.iter());
                unwinding.foresee(&mut kernel, later);
            }
        }
        for Site { pid, scope, object, probes: sites } in &sites {
            let sites: Vec<_> = sites.iter().map(|(probe, _)| probe.clone()).collect();
            let placed = kernel.place(&mut probes, *scope, object, &sites);
            placed.map_err(|error| translate::kernel(Some(*pid), error))?;
        }
        let wanted = kernel.take_wanted().map_err(|error| translate::kernel(None, error))?;
        kernel.open().map_err(|error| translate::kernel(None, error))?;
        followed.begin_at(cost::monotonic_clock());
        // What a command has before it begins is memtrace's own.
        let running = subject.is_running().then(|| followed.running()).into_iter().flatten();
        let pages = PageReader::begin(config, running);
        let reclaim = ReclaimReader::begin(config);
        if let Some(pid) = subject.first_ended() {
            return Err(Error::Ended { pid });
        }
        let opened = Instant::now();
        let opened_at = Tick::at(cost::monotonic_clock().saturating_sub(clock_start));
        let shown = (opened, 0);
        Ok(Self {
            kernel,
            probes,
            own_probes,
            shards,
            followed,
            unwinding,
            wanted,
            takes_stacks: config.max_depth > 0,
            reclaim,
            pages,
            subject,
            selection: options.selection,
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

    /// Becomes readable when the kernel half asks for something.
    fn wanted_fd(&self) -> Option<RawFd> {
        self.wanted.as_ref().map(AsRawFd::as_raw_fd)
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
        self.give_tables();
        let News { allocators, late, changed } = self.followed.poll();
        let is_chosen = |followed: &Followed, pid| {
            let comm = followed.image(pid).map(|image| image.comm.as_str());
            selection::chooses(&self.selection, pid, comm)
        };
        let late = late.into_iter().filter(|&pid| is_chosen(&self.followed, pid)).count();
        self.late.add(LossReason::AllocatorLate, late as u64);
        for (pid, allocator) in allocators {
            let Some(probe_site) = self.subject.probe_site else { continue };
            let matters = is_chosen(&self.followed, pid);
            let scope = self.subject.scope(pid);
            let number = self.followed.number(&allocator);
            let Some(site) = Site::of(pid, scope, &allocator, number, probe_site) else { continue };
            let path = allocator.object.path.display();
            let probes: Vec<_> = site.probes.iter().map(|(probe, _)| probe.clone()).collect();
            let placed = self.kernel.place(&mut self.probes, scope, &site.object, &probes);
            self.complete &= placed.is_ok() || !matters;
            self.followed.placed(&allocator);
            let how = placed.map_or_else(|error| error.to_string(), |()| String::from("probed from now on"));
            let note = format!("process {pid} has mapped another allocator, {path}: {how}");
            if matters {
                observer.note(&note);
                self.subject.notes.push(note);
            }
        }
        if self.kernel.tables().finds_mappings() {
            // What the programs remember of the process' addresses may not be there any more.
            changed.into_iter().for_each(|pid| self.kernel.tables().drop_process(pid));
            return;
        }
        for pid in changed.into_iter().filter(|_| self.takes_stacks) {
            if let Some(image) = self.followed.image(pid) {
                self.unwinding.update(&mut self.kernel, pid, image);
            }
        }
    }

    /// Gives the kernel half the unwind tables that it has asked for, and those that have been built since.
    fn give_tables(&mut self) {
        if let Some(wanted) = &mut self.wanted {
            let mut requests = Vec::new();
            wanted.drain(|wanted| requests.push(wanted));
            for Wanted { object, pid, range } in requests {
                let mapped = self.followed.object(pid, range);
                // A program maps its libraries next.
                let libraries = match &mapped {
                    Some(program) if range.is_none() => self.followed.libraries(program),
                    _ => Vec::new(),
                };
                self.unwinding.want(&mut self.kernel, object, mapped);
                self.unwinding.foresee(&mut self.kernel, &libraries);
            }
        }
        self.unwinding.take_built(&mut self.kernel);
    }

    fn finish(
        mut self,
        config: &Config,
        outputs: Vec<(EventClass, Outputs)>,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, Leaving), Error> {
        if let Err(error) = self.kernel.close() {
            log::warn!("{error}");
            self.complete = false;
        }
        let duration = self.opened.elapsed();
        let now = Tick::at(cost::monotonic_clock().saturating_sub(self.clock_start));
        self.follow(observer);
        self.kernel.flush_log();
        let counters = self.kernel.counters();
        let mut reclaim = self.reclaim.take().map(|reclaim| reclaim.end(&self.kernel));
        let programs = self.kernel.program_time();
        let Books { mut snapshots, events } =
            self.shards.finish(now).map_err(|error| Error::Failed(error.to_string()))?;
        memory::give_back();
        for snapshot in snapshots.0.values_mut() {
            snapshot.losses.merge(&counters.losses);
            snapshot.losses.merge(&self.followed.losses());
            snapshot.losses.merge(&self.late);
            self.followed.add_idle(snapshot);
            self.followed.look_again(snapshot);
        }
        if let Some(pages) = &self.pages {
            pages.settle(&mut snapshots);
        }
        let window = self.opened_at..now;
        self.probes.join(self.own_probes);
        // The target is let go while names are looked up.
        let leaving = Leaving::begin(self.probes);
        let symbolizer = Symbolizer::new();
        let mut losses = Losses::default();
        for (class, outputs) in outputs {
            let snapshot = snapshots.0.remove(&class).unwrap_or_default();
            let mut profile = symbolizer.profile(snapshot, self.followed.images(), &window);
            memory::give_back();
            profile.class = class;
            if class == EventClass::Fault {
                profile.page_sample = config.page_sample.get();
            }
            if class == EventClass::Reclaim
                && let Some(reclaim) = reclaim.take()
            {
                reclaim.tell(&mut profile);
            }
            profile.duration = duration;
            profile.notes = self.subject.notes.clone();
            let hits = if class == EventClass::Heap { profile.total().alloc.count } else { 0 };
            profile.cost = cost::so_far(events, counters.nested, &programs, hits);
            if class == EventClass::Heap {
                profile.allocators = self.followed.allocators().clone();
                profile.filtered = counters.filtered;
                profile.older = config.older;
            }
            report(config, &self.subject.name, outputs, &profile, observer)?;
            // What was lost before there were classes is in each of them; only frames are lost of one.
            if profile.losses.total() > losses.total() {
                losses = profile.losses;
            }
        }
        let command = self.subject.command_end();
        Ok((Outcome { losses, command, complete: self.complete }, leaving))
    }
}

/// The files of `class`'s report: where there are several classes, with its name before the extension.
fn output_of(config: &Config, class: EventClass) -> Vec<Output> {
    let mut outputs = config.outputs.clone();
    if config.events.len() > 1 {
        for output in &mut outputs {
            if let Destination::File(path) = &mut output.destination {
                let extension = path.extension().unwrap_or_default().to_os_string();
                path.set_extension(class.name());
                path.as_mut_os_string().push(".");
                path.as_mut_os_string().push(extension);
            }
        }
    }
    outputs
}

/// The unwind tables kept on disk. Without them each run builds its own.
fn tables_cache() -> Option<Cache> {
    // SAFETY: the call only reads the process' credentials.
    let user = unsafe { libc::geteuid() };
    let cache = unwind::directory(|name| std::env::var_os(name)).map(|folder| Cache::open(&folder, user));
    match cache? {
        Ok(cache) => Some(cache),
        Err(error) => {
            log::debug!("unwind tables are not kept: {error}");
            None
        }
    }
}

fn report(
    config: &Config,
    subject: &str,
    outputs: Outputs,
    profile: &Profile,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let options = report::Options {
        metric: config.metric.fitting(profile.class),
        by: config.by,
        top: config.top,
        subject: subject.to_owned(),
    };
    let (written, failure) = outputs.write(profile, &options);
    let mut summary = Vec::new();
    report::write(report::Format::Text, profile, &options, &mut summary)
        .map_err(|error| Error::Failed(format!("the summary could not be written: {error}")))?;
    observer.summary(&String::from_utf8_lossy(&summary));
    for path in written {
        observer.note(&format!("wrote {}", path.display()));
    }
    failure.map_or(Ok(()), Err)
}

/// Loads the kernel half, and says who is traced and who is not.
fn load(options: &kernel::Options, pids: &[Pid], left_out: &[Pid]) -> Result<(Kernel, Vec<RingReader>), Error> {
    let (mut kernel, readers) = Kernel::load(options).map_err(|error| translate::kernel(None, error))?;
    for &pid in pids {
        kernel.follow(pid).map_err(|error| translate::kernel(Some(pid), error))?;
    }
    for &pid in left_out {
        kernel.leave_out(pid).map_err(|error| translate::kernel(Some(pid), error))?;
    }
    Ok((kernel, readers))
}

fn options(config: &Config, clock_start: Duration, selection: Selection) -> kernel::Options {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let default = u32::try_from(processors.min(DEFAULT_SHARDS)).unwrap_or(1);
    kernel::Options {
        // A peak needs the true order of all events, which only one ring keeps.
        rings: if config.metric == Metric::PeakBytes { 1 } else { config.shards.map_or(default, u32::from) },
        ring_size: config.ring_size,
        max_depth: config.max_depth,
        min_size: config.min_size.unwrap_or(Bytes(0)),
        max_size: config.max_size.unwrap_or(Bytes(u64::MAX)),
        start_ns: u64::try_from(clock_start.as_nanos()).unwrap_or(u64::MAX),
        selection,
        tells_allocators: config.by.parts() == Parts::Allocators,
        page_sample: config.follows(EventClass::Fault).then_some(config.page_sample),
        reclaim: config.follows(EventClass::Reclaim),
        tells_mappings: config.follows(EventClass::Map),
    }
}
