//! Allocation rate of the targets, their own processor time, and the cost of tracing.

use std::time::Duration;

use memtrace_host::kernel::ProbeHits;
use memtrace_model::{Bytes, CallsBySize};

/// Costs of probe hits and of records, as processor time of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::trace) struct CallCosts {
    /// Trap of an allocation that is counted for the estimate, but not recorded.
    pub(super) count: Duration,
    /// Trap at the entry of an allocator function, or inside of it: the mean of an allocation and a free.
    pub(super) entry: Duration,
    /// Trap at the return of an allocator function.
    pub(super) exit: Duration,
    /// True if an allocation has a trap at its return, too.
    pub(super) has_exit: bool,
    /// Trap and BPF program of a probe of tags, spans or marks.
    pub(super) other: Duration,
    /// BPF programs for a recorded allocation and its free.
    pub(super) record: Duration,
    /// Call stack of a recorded allocation.
    pub(super) stack: Duration,
}

impl CallCosts {
    /// Returns the hits of `calls` allocations, each with a free.
    pub(super) const fn hits_of(self, calls: u64) -> ProbeHits {
        ProbeHits { entries: calls.saturating_mul(2), returns: if self.has_exit { calls } else { 0 }, others: 0 }
    }

    /// Returns the processor time, in seconds, that `hits` cost without records.
    fn of_hits(self, hits: ProbeHits) -> f64 {
        let ProbeHits { entries, returns, others } = hits;
        let costs = [(entries, self.entry), (returns, self.exit), (others, self.other)];
        costs.into_iter().map(|(hits, cost)| hits as f64 * cost.as_secs_f64()).sum()
    }
}

/// Minimum share of the targets' processor time that counts as their own work instead of tracing.
const LEAST_OWN: f64 = 0.02;

/// Allocation calls and probe hits of the targets in a period, and their processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Number of calls by size. Calls of at least the minimum size are recorded.
    pub(super) calls: CallsBySize,
    /// Number of further calls, which are not recorded and have unknown sizes.
    pub(super) filtered: u64,
    /// Number of hits of all probes.
    pub(super) hits: ProbeHits,
    /// Length of the period.
    pub(super) during: Duration,
    /// Processor time of the targets. [`Self::without`] subtracts the time of tracing
    /// from it.
    pub(super) own: Duration,
}

impl Load {
    /// Returns the number of all calls.
    pub(super) fn all_calls(&self) -> u64 {
        self.calls.total().saturating_add(self.filtered)
    }

    /// Returns the processor time, in seconds, that tracing of allocations of at least `min_size` costs.
    pub(super) fn cost(&self, costs: CallCosts, min_size: Bytes) -> f64 {
        let recorded = self.calls.of_at_least(min_size) as f64;
        costs.of_hits(self.hits) + recorded * (costs.record + costs.stack).as_secs_f64()
    }

    /// Returns this load without `spent` seconds of processor time, which tracing used.
    pub(super) fn without(self, spent: f64) -> Self {
        let busy = self.own.as_secs_f64();
        Self { own: Duration::from_secs_f64((busy - spent).max(busy * LEAST_OWN)), ..self }
    }
}

/// Costs for tests: 4 µs an allocation with its free, 2 µs without its stack.
#[cfg(test)]
pub(super) const TEST_COSTS: CallCosts = CallCosts {
    count: Duration::ZERO,
    entry: Duration::from_nanos(500),
    exit: Duration::from_nanos(400),
    has_exit: false,
    other: Duration::from_micros(1),
    record: Duration::from_micros(1),
    stack: Duration::from_micros(2),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_hit_has_its_cost() {
        let costs = CallCosts { has_exit: true, ..TEST_COSTS };
        let hits = ProbeHits { others: 1_000_000, ..costs.hits_of(1_000_000) };
        let load = Load { hits, ..Load::default() };
        // 0.5 µs at each of two entries, 0.4 µs at the return, and 1 µs at the other probe.
        assert!((load.cost(costs, Bytes(0)) - 2.4).abs() < 1e-9);
    }

    #[test]
    fn cost_of_tracing_is_not_the_targets_own() {
        let load = Load { own: Duration::from_secs(1), ..Load::default() };
        assert_eq!(load.without(0.5).own, Duration::from_millis(500));
        assert_eq!(load.without(2.0).own, Duration::from_millis(20));
        assert_eq!(Load::default().without(1.0).own, Duration::ZERO);
    }
}
