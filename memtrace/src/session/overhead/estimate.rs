//! Estimate of the overhead from a short count of the target's allocator calls. Pure.

use std::time::Duration;

use crate::kernel::CallRate;
use crate::model::Bytes;

/// Processor time that one allocator call costs the calling thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::session) struct CallCosts {
    /// The trap of an allocation that is only counted.
    pub(super) count: Duration,
    /// The traps of an allocation and its free, of any size.
    pub(super) traps: Duration,
    /// The BPF programs for a recorded allocation and its free.
    pub(super) record: Duration,
    /// The stack of a recorded allocation.
    pub(super) stack: Duration,
}

/// Estimated overhead of tracing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::session) struct Estimate {
    /// Allocations per second, of any size.
    pub(super) calls_per_second: f64,
    /// Share of one processor that tracing takes.
    pub(super) processors: f64,
    /// Additional processor time of the target for the same work, as a share; `None` if the target was idle.
    pub(super) slowdown: Option<f64>,
}

/// Lower bound for the target's own share of the processor time that it used during the count.
const LEAST_OWN: f64 = 0.02;

/// Estimates the overhead if allocations below `min_size` are filtered. `busy` is the processor time that the target
/// used during the count.
pub(super) fn estimate(calls: &CallRate, busy: Duration, costs: CallCosts, min_size: Bytes) -> Estimate {
    let seconds = calls.during.as_secs_f64().max(f64::EPSILON);
    let all: u64 = calls.by_class.iter().sum();
    let recorded: u64 = classes_from(min_size).filter_map(|class| calls.by_class.get(class)).sum();
    // Subtract the cost of the count itself.
    let own = busy.as_secs_f64() - all as f64 * costs.count.as_secs_f64();
    let own = own.max(busy.as_secs_f64() * LEAST_OWN);
    let cost = all as f64 * costs.traps.as_secs_f64() + recorded as f64 * (costs.record + costs.stack).as_secs_f64();
    Estimate {
        calls_per_second: all as f64 / seconds,
        processors: cost / seconds,
        slowdown: (!busy.is_zero()).then(|| cost / own),
    }
}

/// Returns the smallest power of two that, as minimum size, keeps the slowdown within `limit`; `None` if the traps
/// alone exceed it.
pub(super) fn min_size_within(calls: &CallRate, busy: Duration, costs: CallCosts, limit: f64) -> Option<Bytes> {
    let sizes = (0..u64::BITS).map(|power| Bytes(if power == 0 { 0 } else { 1 << power }));
    sizes.into_iter().find(|&size| estimate(calls, busy, costs, size).slowdown.is_none_or(|slowdown| slowdown <= limit))
}

/// Returns the size classes with blocks of at least `size` bytes only.
fn classes_from(size: Bytes) -> impl Iterator<Item = usize> {
    let first = if size.0 <= 1 { 0 } else { size.0.next_power_of_two().trailing_zeros() };
    first as usize..u64::BITS as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CallCosts = CallCosts {
        count: Duration::ZERO,
        traps: Duration::from_micros(2),
        record: Duration::from_nanos(250),
        stack: Duration::from_nanos(750),
    };
    const SECOND: Duration = Duration::from_secs(1);

    fn calls(counts: &[(usize, u64)]) -> CallRate {
        let mut by_class = vec![0; 64];
        for &(class, count) in counts {
            by_class[class] = count;
        }
        CallRate { by_class, during: SECOND }
    }

    #[test]
    fn recorded_calls_cost_their_traps_and_their_record() {
        // 90,000 blocks of 64 to 127 bytes, 10,000 of 4 to 8 KiB.
        let calls = calls(&[(6, 90_000), (12, 10_000)]);
        let all = estimate(&calls, SECOND / 2, COSTS, Bytes(0));
        assert!((all.calls_per_second - 100_000.0).abs() < 1e-6);
        assert!((all.processors - 0.3).abs() < 1e-9);
        assert!((all.slowdown.unwrap() - 0.6).abs() < 1e-9);
        let large = estimate(&calls, SECOND / 2, COSTS, Bytes(4096));
        assert!((large.processors - 0.21).abs() < 1e-9);
    }

    #[test]
    fn cost_of_counting_is_not_the_targets_own() {
        let costs = CallCosts { count: Duration::from_micros(1), ..COSTS };
        let calls = calls(&[(6, 500_000)]);
        let estimated = estimate(&calls, SECOND, costs, Bytes(0));
        assert!((estimated.slowdown.unwrap() - 1.5 / 0.5).abs() < 1e-9);
        let nothing_left = estimate(&calls, SECOND / 2, costs, Bytes(0));
        assert!((nothing_left.slowdown.unwrap() - 1.5 / 0.01).abs() < 1e-9);
    }

    #[test]
    fn idle_target_is_not_slowed_down() {
        let estimated = estimate(&calls(&[]), Duration::ZERO, COSTS, Bytes(0));
        assert_eq!(estimated, Estimate { calls_per_second: 0.0, processors: 0.0, slowdown: None });
    }

    #[test]
    fn minimum_size_grows_until_the_limit_is_kept() {
        let calls = calls(&[(6, 90_000), (12, 10_000)]);
        assert_eq!(min_size_within(&calls, SECOND, COSTS, 0.30), Some(Bytes(0)));
        assert_eq!(min_size_within(&calls, SECOND, COSTS, 0.22), Some(Bytes(128)));
        assert_eq!(min_size_within(&calls, SECOND, COSTS, 0.20), Some(Bytes(8192)));
        assert_eq!(min_size_within(&calls, SECOND, COSTS, 0.19), None);
    }

    #[test]
    fn class_counts_only_if_all_its_blocks_are_large_enough() {
        assert_eq!(classes_from(Bytes(0)).next(), Some(0));
        assert_eq!(classes_from(Bytes(1)).next(), Some(0));
        assert_eq!(classes_from(Bytes(2)).next(), Some(1));
        assert_eq!(classes_from(Bytes(4096)).next(), Some(12));
        assert_eq!(classes_from(Bytes(4097)).next(), Some(13));
    }
}
