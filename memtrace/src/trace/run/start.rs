//! The start of a run: from its configuration to the first event.

use std::time::Instant;

use memtrace_history::facts;
use memtrace_history::ledger;
use memtrace_history::pipeline::{Shards, Sinks};
use memtrace_host::kernel;
use memtrace_model::{EventClass, Tick};

use super::{Trace, coverage};
use crate::run_kit::clock;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::observer::Observer;
use crate::targets::select::Targets;
use crate::targets::track::{ProcessTracker, generated_code};
use crate::targets::unwind_tables::UnwindTables;
use crate::trace::accounts::RunAccounts;
use crate::trace::activity::RunActivity;
use crate::trace::config::{AccountReport, Config};
use crate::trace::cost::processor_time;
use crate::trace::ended_images::{self, EndedImages};
use crate::trace::mark_functions::MarkFunctions;
use crate::trace::periodic_sites::PeriodicSites;
use crate::trace::recorder::Recorder;
use crate::trace::ring_source::RingSource;
use crate::trace::sample::{PageReader, ReclaimReader};
use crate::trace::setup::{self, Setup};
use crate::trace::target_time::TargetTime;
use crate::trace::{memory, tag_functions, tag_probes};

/// The most processes in each shard.
const MAX_PROCESSES: u32 = 1 << 18;

/// Finds the targets, attaches the probes and starts to count events. `observer` gets the estimated overhead before
/// that.
///
/// # Errors
///
/// Probes that are in place are removed when this returns.
pub(in crate::trace) fn start(config: &Config, observer: &mut dyn Observer) -> Result<Trace, Error> {
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
    let shards =
        Shards::start(sources, settings, &config.events, &Sinks { ended: Some(sink), deltas, accounts: account_sink })
            .map_err(|error| Error::Failed(error.to_string()))?;
    let removed = kernel.take_removed_cgroups().map_err(|error| from_engines::kernel(None, error))?;
    tracker.owners.name_cgroups(removed);
    let (copies, frame_data) = (plan.copies, plan.frame_data);
    let tables = UnwindTables::prepare(
        &config.target,
        config.max_depth > 0,
        &mut kernel,
        &targets,
        &mut tracker,
        copies,
        frame_data,
    )?;
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
    let mut facts = facts::at_start(&targets.name, start_tick, &config.grouping.to_recorded(), config.metric);
    facts.extend(config.accounts.as_ref().map(|report| facts::of_accounts(&report.keys)));
    facts.extend(activity.as_ref().and_then(RunActivity::fact));
    if let Some(recorder) = &mut recorder {
        recorder.start(start_tick, facts.iter().cloned());
    }
    let mut trace = Trace {
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
        facts,
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
