//! What tracing will cost the target, foretold from a moment's count of its calls. Pure.

use std::time::Duration;

use crate::kernel::Calls;
use crate::model::Bytes;

/// What one call costs the thread that makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::session) struct Prices {
    /// The one trap of an allocation whose calls are only counted.
    pub(in crate::session) count: Duration,
    /// The traps of an allocation and of the free that follows it, whatever their size.
    pub(in crate::session) traps: Duration,
    /// The programs' work for an allocation that is recorded, its stack and its free included.
    pub(in crate::session) record: Duration,
}

/// What tracing will cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::session) struct Forecast {
    /// Allocations in a second, of whatever size.
    pub(in crate::session) calls_per_second: f64,
    /// How much of one processor tracing will take from the target.
    pub(in crate::session) processors: f64,
    /// How much longer the target will need for the same work, as a share; `None` where it was idle.
    pub(in crate::session) slowdown: Option<f64>,
}

/// At least this share of what the target took while it was counted is thought to be its own.
const LEAST_OWN: f64 = 0.02;

/// Foretells the cost where allocations below `min_size` are filtered. `busy` is how much processor time the target took
/// while its calls were counted.
pub(in crate::session) fn foretell(calls: &Calls, busy: Duration, prices: Prices, min_size: Bytes) -> Forecast {
    let seconds = calls.during.as_secs_f64().max(f64::EPSILON);
    let all: u64 = calls.by_class.iter().sum();
    let recorded: u64 = classes_from(min_size).filter_map(|class| calls.by_class.get(class)).sum();
    // Without having been counted, the target would have taken less.
    let own = busy.as_secs_f64() - all as f64 * prices.count.as_secs_f64();
    let own = own.max(busy.as_secs_f64() * LEAST_OWN);
    let cost = all as f64 * prices.traps.as_secs_f64() + recorded as f64 * prices.record.as_secs_f64();
    Forecast {
        calls_per_second: all as f64 / seconds,
        processors: cost / seconds,
        slowdown: (!busy.is_zero()).then(|| cost / own),
    }
}

/// The smallest power of two that, as the least size that is traced, keeps the slowdown at or below `limit`; `None` where
/// the traps alone cost more.
pub(in crate::session) fn narrow(calls: &Calls, busy: Duration, prices: Prices, limit: f64) -> Option<Bytes> {
    let sizes = (0..u64::BITS).map(|power| Bytes(if power == 0 { 0 } else { 1 << power }));
    sizes
        .into_iter()
        .find(|&size| foretell(calls, busy, prices, size).slowdown.is_none_or(|slowdown| slowdown <= limit))
}

/// The classes of which nothing is below `size`.
fn classes_from(size: Bytes) -> impl Iterator<Item = usize> {
    let first = if size.0 <= 1 { 0 } else { size.0.next_power_of_two().trailing_zeros() };
    first as usize..u64::BITS as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices =
        Prices { count: Duration::ZERO, traps: Duration::from_micros(2), record: Duration::from_micros(1) };
    const SECOND: Duration = Duration::from_secs(1);

    fn calls(counts: &[(usize, u64)]) -> Calls {
        let mut by_class = vec![0; 64];
        for &(class, count) in counts {
            by_class[class] = count;
        }
        Calls { by_class, during: SECOND }
    }

    #[test]
    fn each_call_costs_its_traps_and_each_recorded_one_its_record() {
        // 90,000 of 64 to 127 bytes, 10,000 of 4 to 8 KiB.
        let calls = calls(&[(6, 90_000), (12, 10_000)]);
        let all = foretell(&calls, SECOND / 2, PRICES, Bytes(0));
        assert!((all.calls_per_second - 100_000.0).abs() < 1e-6);
        assert!((all.processors - 0.3).abs() < 1e-9);
        assert!((all.slowdown.unwrap() - 0.6).abs() < 1e-9);
        let large = foretell(&calls, SECOND / 2, PRICES, Bytes(4096));
        assert!((large.processors - 0.21).abs() < 1e-9);
    }

    #[test]
    fn the_cost_of_counting_is_not_taken_for_the_target_s_own() {
        let prices = Prices { count: Duration::from_micros(1), ..PRICES };
        let calls = calls(&[(6, 500_000)]);
        let forecast = foretell(&calls, SECOND, prices, Bytes(0));
        assert!((forecast.slowdown.unwrap() - 1.5 / 0.5).abs() < 1e-9);
        let nothing_left = foretell(&calls, SECOND / 2, prices, Bytes(0));
        assert!((nothing_left.slowdown.unwrap() - 1.5 / 0.01).abs() < 1e-9);
    }

    #[test]
    fn an_idle_target_is_not_slowed_down() {
        let forecast = foretell(&calls(&[]), Duration::ZERO, PRICES, Bytes(0));
        assert_eq!(forecast, Forecast { calls_per_second: 0.0, processors: 0.0, slowdown: None });
    }

    #[test]
    fn narrowing_leaves_out_the_small_until_the_limit_is_kept() {
        let calls = calls(&[(6, 90_000), (12, 10_000)]);
        assert_eq!(narrow(&calls, SECOND, PRICES, 0.30), Some(Bytes(0)));
        assert_eq!(narrow(&calls, SECOND, PRICES, 0.22), Some(Bytes(128)));
        assert_eq!(narrow(&calls, SECOND, PRICES, 0.20), Some(Bytes(8192)));
        assert_eq!(narrow(&calls, SECOND, PRICES, 0.19), None);
    }

    #[test]
    fn a_class_counts_only_where_all_of_it_is_large_enough() {
        assert_eq!(classes_from(Bytes(0)).next(), Some(0));
        assert_eq!(classes_from(Bytes(1)).next(), Some(0));
        assert_eq!(classes_from(Bytes(2)).next(), Some(1));
        assert_eq!(classes_from(Bytes(4096)).next(), Some(12));
        assert_eq!(classes_from(Bytes(4097)).next(), Some(13));
    }
}
