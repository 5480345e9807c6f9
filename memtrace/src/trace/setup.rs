//! Loads the BPF programs for a run, and estimates the overhead of the run with its probes.

use std::thread;
use std::time::Duration;

use memtrace_host::kernel::{self, ActivityOptions, Kernel, Probes, ProcessFilter, RingReader};
use memtrace_model::{Bytes, EventClass, Nanoseconds, PartKeys, Pid};

use super::memory::MemoryPlan;
use crate::options::tag_functions::TagFunction;
use crate::options::{ActivityConfig, BlockSizes};
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::{AllocatorProbes, Targets, running_processes};
use crate::targets::track::ProcessTracker;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::overhead::{self, CallCosts, CostOptions, Overhead, OverheadMeter};

/// Maximum of the default number of shards. Machines with fewer processors have one shard for each processor. One shard
/// handles millions of events per second.
const DEFAULT_SHARDS: usize = 4;

/// Loaded BPF programs, and the cost of their probes.
pub(super) struct Setup {
    pub(super) kernel: Kernel,
    pub(super) readers: Vec<RingReader>,
    pub(super) filter: ProcessFilter,
    /// Probes in memtrace itself.
    pub(super) own_probes: Probes,
    /// Costs of probe hits; `None` if allocators are not probed, or if the costs are not known.
    pub(super) costs: Option<CallCosts>,
}

impl Setup {
    /// Loads the BPF programs, and measures the cost of a probe hit on this machine. `filter` selects the processes.
    pub(super) fn load(
        config: &Config,
        plan: &MemoryPlan,
        clock_start: Duration,
        filter: ProcessFilter,
        targets: &mut Targets,
        allocators: &mut Vec<AllocatorProbes>,
        tracker: &mut ProcessTracker,
    ) -> Result<Self, Error> {
        tracker.objects().limit_files(plan.files);
        let options = options(config, clock_start, filter, rings(config), plan);
        let mut own_probes = Probes::default();
        let pids: Vec<_> = targets.pids().collect();
        let (mut kernel, readers) = load(&options, &pids)?;
        allocators.extend(targets.follow_descendants(&mut kernel, tracker)?);
        let mut costs = None;
        if config.probes_allocators() {
            let takes_stacks = config.tuning.max_depth > 0;
            let measured = overhead::call_costs(&mut kernel, &mut own_probes, tracker, allocators, takes_stacks);
            costs = match measured {
                // Without the costs, there is neither an estimate nor a check of the limit.
                Err(error) if targets.ran_before() || config.heap.max_overhead.is_some() => return Err(error),
                measured => measured.inspect_err(|error| log::warn!("the overhead is not measured: {error}")).ok(),
            };
        }
        Ok(Self { kernel, readers, filter: options.filter, own_probes, costs })
    }
}

/// Expected overhead of a run.
#[derive(Default)]
pub(super) struct ExpectedOverhead {
    /// Lines about the overhead, for the user.
    pub(super) lines: Vec<String>,
    /// Monitor of the overhead during the trace; `None` if the costs of probe hits are not known.
    pub(super) meter: Option<OverheadMeter>,
    /// True if the blocks are sampled instead, because tracing each call exceeds the limit.
    pub(super) is_sampled: bool,
}

impl ExpectedOverhead {
    /// If the targets run already, counts their allocations and the hits of the probes that are already attached, and
    /// estimates the overhead. If the estimate exceeds the limit, lets the blocks be sampled if code may be changed, or else raises
    /// the minimum size.
    pub(super) fn estimate(
        config: &Config,
        costs: Option<CallCosts>,
        allocators: &[AllocatorProbes],
        context: &mut Context,
    ) -> Result<Self, Error> {
        let Some(costs) = costs else { return Ok(Self::default()) };
        let Context { kernel, probes, targets, tracker, filter, .. } = context;
        let (mut min_size, max_size) = sizes(config);
        let allows_patching = config.allow_patching;
        let (mut lines, mut warning) = (Vec::new(), None);
        // Without a probe, the trace costs the targets nothing.
        if targets.ran_before() && !(allocators.is_empty() && probes.is_empty()) {
            let family: Vec<_> = targets.family().collect();
            let measured = if family.is_empty() { running_processes(filter, tracker) } else { family };
            let estimated = Overhead::measure(kernel, probes, allocators, &measured, costs)?;
            lines.push(estimated.describe(min_size));
            if let Some(limit) = config.heap.max_overhead {
                let size = estimated.min_size_within(limit, min_size..=max_size);
                if allows_patching && !matches!(size, Ok(size) if size == min_size) {
                    lines.push(String::from(
                        "to stay below --max-overhead, allocations are sampled instead, by patched allocators",
                    ));
                    return Ok(Self { lines, meter: None, is_sampled: true });
                }
                let size = size?;
                if size > min_size {
                    let note = format!("to stay below --max-overhead, only allocations of at least {size} are traced");
                    lines.push(note);
                    kernel.raise_min_size(size).map_err(|error| from_engines::kernel(None, error))?;
                    min_size = size;
                }
            }
            warning = estimated.warning(CostOptions { min_size, allows_patching });
        }
        let meter = OverheadMeter::new(costs, CostOptions { min_size, allows_patching }, warning.is_some());
        let meter = match config.heap.max_overhead {
            Some(limit) => meter.with_limit(limit, max_size),
            None => meter,
        };
        lines.extend(warning);
        Ok(Self { lines, meter: Some(meter), is_sampled: false })
    }
}

/// Returns the smallest and the largest size of a recorded allocation.
fn sizes(config: &Config) -> (Bytes, Bytes) {
    (config.heap.min_size.unwrap_or(Bytes(0)), config.heap.max_size.unwrap_or(Bytes(u64::MAX)))
}

/// Loads the BPF programs, and adds `pids` to the traced processes.
fn load(options: &kernel::Options, pids: &[Pid]) -> Result<(Kernel, Vec<RingReader>), Error> {
    let (mut kernel, readers) = Kernel::load(options).map_err(|error| from_engines::kernel(None, error))?;
    for &pid in pids {
        kernel.follow(pid).map_err(|error| from_engines::kernel(Some(pid), error))?;
    }
    Ok((kernel, readers))
}

fn activity_options(activity: &ActivityConfig) -> ActivityOptions {
    let nanoseconds = |time: Duration| Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (min_wait, min_call) = (activity.min_wait.map(nanoseconds), activity.min_call.map(nanoseconds));
    ActivityOptions { min_wait, min_call }
}

/// Returns the number of rings of events, and so of shards.
pub(super) fn rings(config: &Config) -> u32 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let default = u32::try_from(processors.min(DEFAULT_SHARDS)).unwrap_or(1);
    // A peak needs the order of all events, which only a single ring keeps.
    if config.keeps_peaks() { 1 } else { config.shards.map_or(default, u32::from) }
}

fn options(
    config: &Config,
    clock_start: Duration,
    filter: ProcessFilter,
    rings: u32,
    plan: &MemoryPlan,
) -> kernel::Options {
    let (min_size, max_size) = sizes(config);
    kernel::Options {
        rings,
        ring_size: plan.ring_size,
        map_sizes: plan.maps,
        max_depth: config.tuning.max_depth,
        min_size,
        max_size,
        start_ns: u64::try_from(clock_start.as_nanos()).unwrap_or(u64::MAX),
        filter,
        threads: config.threads.clone(),
        records_allocators: config.parts().contains(PartKeys::ALLOCATOR),
        records_tags: config.parts().contains(PartKeys::TAG),
        records_late_tags: config.tag_functions.iter().any(TagFunction::is_wrapper),
        records_thread_exits: config.accounts.as_ref().is_some_and(|accounts| !accounts.needs_stacks()),
        usable_sizes: config.heap.size.unwrap_or_default() == BlockSizes::Usable,
        page_sample: config.follows(EventClass::counts_pages).then_some(config.pages.one_in()),
        records_huge_pages: config.follows(EventClass::counts_pages),
        records_moves: config.follows(EventClass::counts_pages),
        reclaim: config.follows(EventClass::counts_stalls),
        records_mappings: config.follows(EventClass::holds_mappings),
        counts_threads: false,
        activity: config.activity.as_ref().map(activity_options),
    }
}
