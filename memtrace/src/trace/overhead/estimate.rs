//! Estimate of the overhead from a count of the targets' allocator calls.

use memtrace_model::{Bytes, format};

use super::load::{CallCosts, Load};

/// The search for a minimum size stops at a size that filters this share of the calls. A larger size gains little.
const MOST_CALLS: f64 = 0.9;

/// Estimated overhead of tracing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::trace) struct Estimate {
    /// Number of allocations of any size per second.
    pub(super) calls_per_second: f64,
    /// Processor time that tracing takes, as a share of one processor's time.
    pub(super) processors: f64,
    /// Processor time that tracing takes, as a share of the target's processor time; `None` if the target was idle.
    pub(super) slowdown: Option<f64>,
}

impl Estimate {
    /// Describes an estimate in a sentence.
    pub(super) fn expected(self) -> String {
        self.sentence("about")
    }

    /// Describes a measurement in a sentence. Some costs, such as misses of a cold cache, are not
    /// measured.
    pub(super) fn measured(self) -> String {
        self.sentence("at least")
    }

    fn sentence(self, accuracy: &str) -> String {
        let Self { calls_per_second, processors, slowdown } = self;
        let slowdown = match slowdown {
            Some(slowdown) => format!(", {}", of_target(slowdown)),
            None => String::new(),
        };
        format!(
            "at {calls_per_second:.0} allocations per second, tracing takes {accuracy} {}{slowdown}",
            of_one_processor(processors)
        )
    }
}

/// Formats a share of the target's processor time. The glossary defines the term.
pub(super) fn of_target(share: f64) -> String {
    format!("{} of the target's processor time", format::rough_percent(share))
}

/// Formats a share of one processor's time.
pub(super) fn of_one_processor(share: f64) -> String {
    format!("{} of one processor", format::rough_percent(share))
}

/// Estimates the overhead if allocations below `min_size` are filtered.
pub(super) fn estimate(load: &Load, costs: CallCosts, min_size: Bytes) -> Estimate {
    let seconds = load.during.as_secs_f64().max(f64::EPSILON);
    let cost = load.cost(costs, min_size);
    Estimate {
        calls_per_second: load.all_calls() as f64 / seconds,
        processors: cost / seconds,
        slowdown: (!load.own.is_zero()).then(|| cost / load.own.as_secs_f64()),
    }
}

/// Returns the smallest of the [`minimum_sizes`] that keeps the slowdown within `limit`; `None` if the cost of the
/// traps alone exceeds `limit`.
pub(super) fn min_size_within(load: &Load, costs: CallCosts, limit: f64) -> Option<Bytes> {
    let is_within = |&size: &Bytes| estimate(load, costs, size).slowdown.is_none_or(|slowdown| slowdown <= limit);
    minimum_sizes().find(is_within)
}

/// Returns the smallest of the [`minimum_sizes`] above `min_size` that filters most of the recorded calls.
pub(super) fn min_size_of_few(load: &Load, min_size: Bytes) -> Option<Bytes> {
    let all = load.calls.total() as f64;
    let filters_most = |size: &Bytes| load.calls.of_at_least(*size) as f64 <= all * (1.0 - MOST_CALLS);
    minimum_sizes().filter(|&size| size > min_size).find(filters_most)
}

/// Returns the candidates for a minimum size: 0, which filters nothing, and powers of two.
pub(super) fn minimum_sizes() -> impl Iterator<Item = Bytes> {
    (0..u64::BITS).map(|power| Bytes(if power == 0 { 0 } else { 1 << power }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COSTS: CallCosts = CallCosts {
        count: Duration::ZERO,
        entry: Duration::from_micros(1),
        exit: Duration::ZERO,
        has_exit: false,
        other: Duration::ZERO,
        record: Duration::from_nanos(250),
        stack: Duration::from_nanos(750),
    };
    const SECOND: Duration = Duration::from_secs(1);

    /// 90,000 blocks of 64 to 127 bytes, 10,000 of 4 to 8 KiB, in one second.
    fn mixed(own: Duration) -> Load {
        Load {
            calls: [(Bytes(64), 90_000), (Bytes(4096), 10_000)].into_iter().collect(),
            filtered: 0,
            hits: COSTS.hits_of(100_000),
            during: SECOND,
            own,
        }
    }

    #[test]
    fn recorded_calls_cost_their_traps_and_their_record() {
        let load = mixed(SECOND / 2);
        let all = estimate(&load, COSTS, Bytes(0));
        assert!((all.calls_per_second - 100_000.0).abs() < 1e-6);
        assert!((all.processors - 0.3).abs() < 1e-9);
        assert!((all.slowdown.unwrap() - 0.6).abs() < 1e-9);
        let large = estimate(&load, COSTS, Bytes(4096));
        assert!((large.processors - 0.21).abs() < 1e-9);
    }

    #[test]
    fn filtered_calls_cost_their_traps() {
        let load = Load { filtered: 100_000, hits: COSTS.hits_of(200_000), ..mixed(SECOND) };
        let estimate = estimate(&load, COSTS, Bytes(0));
        assert!((estimate.calls_per_second - 200_000.0).abs() < 1e-6);
        assert!((estimate.processors - 0.5).abs() < 1e-9);
    }

    #[test]
    fn estimate_is_described_in_a_sentence() {
        let estimate = Estimate { calls_per_second: 12_345.6, processors: 0.025, slowdown: Some(0.137) };
        assert_eq!(
            estimate.expected(),
            "at 12346 allocations per second, tracing takes about 2.5 % of one processor, 14 % of the target's \
             processor time"
        );
        assert!(!Estimate { slowdown: None, ..estimate }.expected().contains("target"));
    }

    #[test]
    fn idle_target_is_not_slowed_down() {
        let idle = Load { calls: Default::default(), hits: Default::default(), ..mixed(Duration::ZERO) };
        let expected = Estimate { calls_per_second: 0.0, processors: 0.0, slowdown: None };
        assert_eq!(estimate(&idle, COSTS, Bytes(0)), expected);
    }

    #[test]
    fn minimum_size_grows_until_the_limit_is_kept() {
        let load = mixed(SECOND);
        assert_eq!(min_size_within(&load, COSTS, 0.30), Some(Bytes(0)));
        assert_eq!(min_size_within(&load, COSTS, 0.22), Some(Bytes(128)));
        assert_eq!(min_size_within(&load, COSTS, 0.20), Some(Bytes(8192)));
        assert_eq!(min_size_within(&load, COSTS, 0.19), None);
    }
}
