//! Allocation rate of the targets, their own processor time, and the cost of tracing.

use std::time::Duration;

use memtrace_model::{Bytes, CallsBySize};

/// Costs of an allocator call, as processor time of the calling thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::trace) struct CallCosts {
    /// Trap of an allocation that is counted for the estimate, but not recorded.
    pub(super) count: Duration,
    /// Traps of an allocation and its free, of any size.
    pub(super) traps: Duration,
    /// BPF programs for a recorded allocation and its free.
    pub(super) record: Duration,
    /// Call stack of a recorded allocation.
    pub(super) stack: Duration,
}

/// Minimum share of the targets' processor time that counts as their own work instead of tracing.
const LEAST_OWN: f64 = 0.02;

/// Allocation calls of the targets in a period, and their processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Number of calls by size. Calls of at least the minimum size are recorded.
    pub(super) calls: CallsBySize,
    /// Number of further calls, which are not recorded and have unknown sizes.
    pub(super) filtered: u64,
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
        self.all_calls() as f64 * costs.traps.as_secs_f64() + recorded * (costs.record + costs.stack).as_secs_f64()
    }

    /// Returns this load without `spent` seconds of processor time, which tracing used.
    pub(super) fn without(self, spent: f64) -> Self {
        let busy = self.own.as_secs_f64();
        Self { own: Duration::from_secs_f64((busy - spent).max(busy * LEAST_OWN)), ..self }
    }
}

/// Costs for tests: 4 µs a call, 2 µs without its stack.
#[cfg(test)]
pub(super) const TEST_COSTS: CallCosts = CallCosts {
    count: Duration::ZERO,
    traps: Duration::from_micros(1),
    record: Duration::from_micros(1),
    stack: Duration::from_micros(2),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_tracing_is_not_the_targets_own() {
        let load = Load { own: Duration::from_secs(1), ..Load::default() };
        assert_eq!(load.without(0.5).own, Duration::from_millis(500));
        assert_eq!(load.without(2.0).own, Duration::from_millis(20));
        assert_eq!(Load::default().without(1.0).own, Duration::ZERO);
    }
}
