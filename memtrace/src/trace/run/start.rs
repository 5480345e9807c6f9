//! The start of a run: from its configuration to the first event.

use std::time::{Duration, Instant};

use memtrace_history::facts;
use memtrace_history::ledger;
use memtrace_history::pipeline::{Drained, Shards, Sinks, Source};
use memtrace_host::kernel::{self, Probes, RingReader};
use memtrace_host::procfs::{self, ProcessorWait};
use memtrace_model::{Event, Losses, Pid, UntracedReason};

use super::Trace;
use crate::options::SamplingRate;
use crate::run_kit::clock;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::observer::Observer;
use crate::run_kit::own_allocator;
use crate::run_kit::privileges;
use crate::run_kit::realtime;
use crate::run_kit::service_manager::Watchdog;
use crate::run_kit::start_progress::StartProgress;
use crate::targets::select::{
    AllocatorProbes, LeftOut, PostponedProbes, Selection, Target, Targets, filter, other_tracers, refused,
};
use crate::targets::track::{Coverage, ProcessTracker, generated_code};
use crate::targets::unwind_tables::UnwindTables;
use crate::trace::config::{AccountReport, Config};
use crate::trace::context::{Context, RunClock};
use crate::trace::cost::processor_time;
use crate::trace::ended_images::{self, EndedImages};
use crate::trace::mark_functions::MarkFunctions;
use crate::trace::memory::MemoryPlan;
use crate::trace::overhead::CallCosts;
use crate::trace::parts::{Parts, Prepared};
use crate::trace::recorder::Recorder;
use crate::trace::setup::{self, ExpectedOverhead, Setup};
use crate::trace::tag_presets::RunTags;
use crate::trace::{memory, tag_functions, tag_probes};

/// Maximum number of processes in each shard.
const MAX_PROCESSES: u32 = 1 << 18;

/// Finds the targets, attaches the probes and starts to count events. `observer` gets the estimated overhead, and `progress` each
/// step.
///
/// # Errors
///
/// The targets cannot be traced. Probes that are already in place are removed.
pub(in crate::trace) fn start(
    config: &Config,
    progress: &StartProgress,
    observer: &mut dyn Observer,
) -> Result<Trace, Error> {
    kernel::features::require().map_err(|error| from_engines::kernel(None, error))?;
    config.tuning.realtime.map_or(Ok(()), realtime::check)?;
    let (origin, clock_instant) = (clock::monotonic(), Instant::now());
    let (plan, note) = memory::plan(config, setup::rings(config))?;
    let (keys, user_hooks) = (config.parts(), config.user_hooks.clone());
    let mut tracker = ProcessTracker::new(origin, keys, user_hooks, plan.mmap_ring, plan.registry);
    let probe_site = config.probes_allocators().then_some(config.heap.probe_site);
    if !config.heap.source.attaches_probes() {
        tracker.allocators.attach_none(UntracedReason::NoOwnProfile);
    } else if config.sampling.is_some() {
        tracker.allocators.attach_none(UntracedReason::NotPatched);
    }
    if config.reads_own_profiles() {
        tracker.own_profiles.enable();
    }
    let is_command = matches!(config.target, Target::Command { .. });
    if !is_command {
        privileges::keep_for_tracing();
    }
    progress.begin("looking for other memtraces");
    let left_out = LeftOut::find(&config.target);
    // Programs at tracepoints, such as those for page faults and for the activity of threads, run for all processes, so
    // they need a filter.
    let only_probes = config.activity.is_none() && config.events.iter().all(|class| class.probes_allocators());
    let filter = filter::resolve(&config.target, only_probes, left_out.memtraces())?;
    filter::require_match(&config.target, &filter)?;
    let (mut targets, mut allocators) = Targets::find(&config.target, probe_site, &mut tracker, progress)?;
    // A sampled run has no probes of each call, so no probe has to leave room for a patch.
    if config.allow_patching && config.sampling.is_none() {
        targets.leave_room_for_patches();
    }
    // The command has started with the privileges of its user, so memtrace can drop its own privileges.
    if is_command {
        privileges::keep_for_tracing();
    }
    let tags = RunTags::find(config, &tracker, &mut targets.notes)?;
    let recorder = Recorder::create(config, setup::rings(config) as usize, clock_instant, &plan)?;
    let (recorder, deltas) = recorder.unzip();
    progress.begin("loading BPF programs");
    let setup = Setup::load(config, &plan, origin, filter, &mut targets, &mut allocators, &mut tracker)?;
    let Setup { own_probes, mut kernel, readers, filter, costs } = setup;
    let (prepared, accounts) = Prepared::with_accounts(config, &plan);
    let sources: Vec<_> = readers.into_iter().map(|reader| RingSource::new(reader, config.tuning.realtime)).collect();
    let rings = sources.len();
    let (sink, ended) = ended_images::channel(plan.ended.waiting);
    let sinks = Sinks { ended: Some(sink), deltas, accounts };
    let shards = Shards::start(sources, settings(config, &plan), &config.events, &sinks)
        .map_err(|error| Error::Failed(error.to_string()))?;
    let removed = kernel.take_removed_cgroups().map_err(|error| from_engines::kernel(None, error))?;
    tracker.owners.name_cgroups(removed);
    let takes_stacks = config.tuning.max_depth > 0;
    let limits = plan.unwinding;
    let tables =
        UnwindTables::prepare(&config.target, takes_stacks, &mut kernel, &targets, &mut tracker, limits, progress)?;
    let mut context = Context {
        kernel,
        probes: Probes::default(),
        shards,
        tracker,
        tables,
        targets,
        filter,
        left_out,
        // The clock starts again when all probes are in place.
        clock: RunClock::start(origin),
        tags,
        classes: config.events.clone(),
        sampling: config.sampling,
        patch_requests: Vec::new(),
        sampled_instead: Vec::new(),
        late_allocators: Vec::new(),
        recorder,
        losses: Losses::default(),
        complete: true,
        demoted: 0,
        stop: None,
    };
    let (mut parts, overhead, mark_functions) =
        attach(config, prepared, costs, &mut allocators, &mut context, progress)?;
    progress.begin("examining processes");
    begin(&mut context)?;
    let hits_at_start = context.kernel.counters().hits;
    let ExpectedOverhead { lines, meter, .. } = overhead;
    parts.begin(config, Prepared::with_events(meter, &plan, rings), &mut context)?;
    for line in note.iter().chain(&context.left_out.note()).chain(&lines) {
        observer.note(line);
    }
    // Processes of a selection are patched later.
    let are_patched_later = matches!(config.target, Target::Selected { .. }) && config.allow_patching;
    let untraced = match context.targets.ran_before() && !(are_patched_later && context.sampling.is_some()) {
        true => coverage(&mut context).count(&config.events),
        false => 0,
    };
    context.clock = RunClock::start(origin);
    let (start, start_tick) = (context.clock.start, context.clock.start_tick);
    let mut facts = facts::at_start(&context.targets.name, start_tick, &config.grouping.to_recorded(), config.metric);
    facts.extend((!context.targets.ran_before()).then(facts::of_started_targets));
    facts.extend(parts.start(&context));
    if let Some(recorder) = &mut context.recorder {
        recorder.start(start_tick, facts.iter().cloned());
    }
    Ok(Trace {
        ended: EndedImages::new(ended, rings, plan.ended.waiting, plan.of_ended(config.keep_ended, start_tick)),
        context,
        parts,
        mark_functions,
        own_probes,
        postponed: PostponedProbes::default(),
        cpu_at_start: processor_time(),
        hits_at_start,
        facts,
        untraced,
        ticks: 0,
        shown: (start, 0),
        deadline: None,
        watchdog: Watchdog::of_environment(),
    })
}

/// Attaches all probes, and estimates the overhead, which includes the probes of tags and spans. No event counts yet.
fn attach(
    config: &Config,
    prepared: Prepared,
    costs: Option<CallCosts>,
    allocators: &mut Vec<AllocatorProbes>,
    context: &mut Context,
    progress: &StartProgress,
) -> Result<(Parts, ExpectedOverhead, Option<MarkFunctions>), Error> {
    progress.begin("looking for the probes of other tracers");
    context.targets.avoid_patched_code(allocators);
    let others = other_tracers::find(allocators, &context.targets, &context.filter);
    context.targets.notes.extend(other_tracers::note(&others));
    progress.begin(other_tracers::attach_step(&others));
    let Context { kernel, probes, targets, tracker, tags, .. } = context;
    tag_functions::attach(kernel, probes, &tags.functions, config.heap.probe_site, targets, tracker)?;
    tag_probes::attach(kernel, probes, &config.tag_probes, targets, tracker)?;
    let parts = Parts::attach(config, prepared, context)?;
    let overhead = ExpectedOverhead::estimate(config, costs, allocators, context)?;
    if overhead.is_sampled {
        sample_instead(allocators, context);
    }
    let Context { kernel, probes, targets, tracker, filter, complete, .. } = context;
    AllocatorProbes::place_all(allocators.iter(), kernel, probes, progress)?;
    let mark_functions = config.recording.iter().flat_map(|recording| &recording.mark_functions);
    let mark_functions = MarkFunctions::attach(kernel, probes, mark_functions, targets)?;
    *complete &= !refused::note_all(probes, allocators, targets, tracker, filter);
    Ok((parts, overhead, mark_functions))
}

/// Replaces the probes of each call by samples of patched allocators, because they would cost too much.
fn sample_instead(allocators: &mut Vec<AllocatorProbes>, context: &mut Context) {
    let objects = allocators.drain(..).map(|allocator| allocator.object).collect();
    // The estimate has attached some of the probes.
    context.probes.remove_objects(&objects);
    // Events of the removed probes would count in addition to the samples.
    context.probes.complete_removals();
    context.targets.probe_site = None;
    context.tracker.allocators.attach_none(UntracedReason::NotPatched);
    context.sampling = Some(SamplingRate::default());
}

/// Opens the recording gate: events count from now on.
fn begin(context: &mut Context) -> Result<(), Error> {
    context.kernel.open().map_err(|error| from_engines::kernel(None, error))?;
    context.tracker.start_at(clock::monotonic());
    generated_code::add_running(&mut context.tracker);
    match context.targets.first_exited() {
        Some(pid) => Err(Error::Ended { pid }),
        None => Ok(()),
    }
}

fn settings(config: &Config, plan: &MemoryPlan) -> ledger::Settings {
    ledger::Settings {
        blocks: plan.live,
        stacks: plan.stacks,
        processes: MAX_PROCESSES,
        track_peak: config.keeps_peaks(),
        older: config.blocks.older,
        lifetimes: config.blocks.lifetimes,
        page_sample: config.pages.one_in().get(),
        parts: config.parts(),
        accounts: config.accounts.as_ref().map(AccountReport::parts),
    }
}

/// Returns the coverage of the processes that the BPF programs select.
pub(super) fn coverage(context: &mut Context) -> Coverage {
    let selection = Selection::of(&context.filter);
    Coverage::of(&mut context.tracker, &|tracker, id| selection.contains(tracker, id))
}

struct RingSource {
    reader: RingReader,
    /// Real-time priority of the thread that drains the ring; `None` for a higher priority than usual.
    realtime: Option<u8>,
    /// Meter of the time that this thread waits for a processor; `None` before the thread begins.
    wait: Option<ProcessorWait>,
}

impl RingSource {
    const fn new(reader: RingReader, realtime: Option<u8>) -> Self {
        Self { reader, realtime, wait: None }
    }
}

impl Source for RingSource {
    fn begin(&mut self) {
        match self.realtime.map(realtime::set) {
            Some(Err(error)) => log::warn!("--realtime has no effect: {error}"),
            Some(Ok(())) => {}
            None => RingReader::raise_priority(),
        }
        self.wait = ProcessorWait::of_this_thread();
    }

    fn waited(&self) -> Duration {
        self.wait.as_ref().map_or(Duration::ZERO, ProcessorWait::elapsed)
    }

    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        let drained = self.reader.drain(limit as u64, sink);
        let records = usize::try_from(drained.events + drained.bad).unwrap_or(usize::MAX);
        Drained { records, bad: drained.bad }
    }

    fn has_unread(&mut self) -> bool {
        self.reader.has_unread()
    }

    fn user_of(pid: Pid) -> Option<u32> {
        procfs::responsible_user(pid)
    }

    fn return_memory(&mut self) {
        own_allocator::trim();
    }

    fn wait(&mut self, timeout: Duration) {
        self.reader.wait(timeout);
    }
}
