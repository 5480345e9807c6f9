//! Measures the allocation rate of the targets and the cost of a call, before the trace.

use std::ops::RangeInclusive;
use std::time::Duration;

use memtrace_host::kernel::{Kernel, Probe, ProbeHits, Probes};
use memtrace_host::procfs;
use memtrace_model::{Bytes, Pid, Signature, format};
use memtrace_object::probe_site::Cost as SiteCost;

use super::estimate::{self, Estimate, of_one_processor};
use super::load::{CallCosts, Load};
use super::warning::{self, CostOptions};
use crate::options::units::Percent;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::probe_cost;
use crate::targets::select::AllocatorProbes;
use crate::targets::track::ProcessTracker;

/// Duration of the count of allocator calls.
const COUNT_TIME: Duration = Duration::from_millis(100);

/// Time of the BPF programs for an allocation and its free, without a stack. From `cargo xtask bench overhead`. The
/// traps are most of the cost and differ most between machines, so memtrace measures them.
const RECORD: Duration = Duration::from_nanos(150);
/// Time of the BPF program that records a step of a span. Programs of tags and marks take less. From
/// `cargo xtask bench spans`.
const STEP: Duration = Duration::from_nanos(250);
/// Additional time of the BPF programs for the stack of an allocation. From `cargo xtask bench overhead`.
const STACK: Duration = Duration::from_nanos(500);

/// Allocation rate of the targets and cost of a call: the basis of the estimated overhead.
pub(in crate::trace) struct Overhead {
    load: Load,
    costs: CallCosts,
}

impl Overhead {
    /// Attaches the entry probes of all functions that return a block and free none. Then counts the calls at these
    /// probes and the hits of the probes of tags and spans, and measures the processor time of `pids`. The trace needs
    /// these probes too.
    pub(in crate::trace) fn measure(
        kernel: &mut Kernel,
        probes: &mut Probes,
        allocators: &[AllocatorProbes],
        pids: &[Pid],
        costs: CallCosts,
    ) -> Result<Self, Error> {
        for allocator in allocators {
            for (probe, _) in allocator.probes.iter().filter(|(probe, _)| probe.signature.is_alloc()) {
                kernel
                    .attach_entry(probes, allocator.scope, &allocator.object, probe)
                    .map_err(|error| from_engines::kernel(Some(allocator.pid), error))?;
            }
        }
        let processor_time = |&pid: &Pid| Some((pid, procfs::processor_time(pid)?));
        let before = pids.iter().filter_map(processor_time).collect::<Vec<_>>();
        let rate = kernel.count_calls(COUNT_TIME).map_err(|error| from_engines::kernel(None, error))?;
        let since = |(pid, before)| Some(procfs::processor_time(pid)?.saturating_sub(before));
        let busy = before.into_iter().filter_map(since).sum();
        let calls = rate.calls.total();
        let hits = ProbeHits { others: rate.other_hits, ..costs.hits_of(calls) };
        let counted = Load { calls: rate.calls, filtered: 0, hits, during: rate.during, own: busy };
        let count_cost = calls.saturating_add(rate.other_hits) as f64 * costs.count.as_secs_f64();
        Ok(Self { load: counted.without(count_cost), costs })
    }

    /// Estimates the overhead of tracing allocations of at least `min_size`.
    fn estimate(&self, min_size: Bytes) -> Estimate {
        estimate::estimate(&self.load, self.costs, min_size)
    }

    /// Describes the estimate in a sentence.
    pub(in crate::trace) fn describe(&self, min_size: Bytes) -> String {
        self.estimate(min_size).expected()
    }

    /// Returns a warning if tracing takes too much of the target's processor time.
    pub(in crate::trace) fn warning(&self, options: CostOptions) -> Option<String> {
        warning::warning(&self.load, self.costs, options)
    }

    /// Returns the smallest minimum size in `sizes` that keeps the slowdown within `limit`.
    pub(in crate::trace) fn min_size_within(
        &self,
        limit: Percent,
        sizes: RangeInclusive<Bytes>,
    ) -> Result<Bytes, Error> {
        let min_size = *sizes.start();
        let size = estimate::min_size_within(&self.load, self.costs, limit.share());
        let over_budget = || {
            let Estimate { processors, slowdown, .. } = self.estimate(min_size);
            let slowdown = format::rough_percent(slowdown.unwrap_or_default());
            Error::OverBudget {
                // Even a small part of one processor can be a high share if the target is nearly idle.
                estimated: format!("{slowdown} more processor time ({})", of_one_processor(processors)),
                allowed: format::rough_percent(limit.share()),
            }
        };
        size.map(|size| size.max(min_size)).filter(|size| sizes.contains(size)).ok_or_else(over_budget)
    }
}

/// Measures the cost of a call on this machine, with probes in memtrace itself.
pub(in crate::trace) fn call_costs(
    kernel: &mut Kernel,
    probes: &mut Probes,
    tracker: &mut ProcessTracker,
    allocators: &[AllocatorProbes],
    takes_stacks: bool,
) -> Result<CallCosts, Error> {
    let probe_cost = probe_cost::measure(kernel, probes, tracker.objects()).map_err(|error| match error {
        probe_cost::Error::Kernel(error) => from_engines::kernel(None, error),
        other => Error::Failed(format!("cannot measure the cost of a probe: {other}")),
    })?;
    let first = |has_signature: fn(&Signature) -> bool| {
        let mut probes = allocators.iter().flat_map(|allocator| &allocator.probes);
        probes.find(|(probe, _)| has_signature(&probe.signature))
    };
    let alloc = first(|signature| matches!(signature, Signature::Alloc { .. }));
    let free = first(|signature| matches!(signature, Signature::Free { .. }));
    let at_entry = |probe: Option<&(Probe, SiteCost)>| {
        probe_cost.without_return(probe.map_or(SiteCost::Emulated, |(_, cost)| *cost))
    };
    let (count, has_exit) = match alloc {
        Some((probe, _)) if kernel.uses_results(probe) => (probe_cost.at_result_site(), false),
        alloc => (at_entry(alloc), true),
    };
    let costs = CallCosts {
        count,
        entry: (count + at_entry(free)) / 2,
        exit: probe_cost.at_return(),
        has_exit,
        // The instruction at a user probe is emulated. The instruction at the entry or return of a function can cost more.
        other: probe_cost.without_return(SiteCost::Emulated) + STEP,
        record: RECORD,
        stack: if takes_stacks { STACK } else { Duration::ZERO },
    };
    log::debug!("costs of probe hits: {costs:?}");
    Ok(costs)
}
