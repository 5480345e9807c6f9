//! Warning about a high overhead, with the options that lower it. Pure.

use std::time::Duration;

use super::estimate::{CallCosts, estimate};
use crate::kernel::CallRate;
use crate::model::{Bytes, format};

/// Share of the target's processor time above which the overhead deserves a warning.
const TOLERATED: f64 = 0.25;

/// An option is named only if it leaves at most this part of the overhead.
const WORTHWHILE: f64 = 0.9;

/// A minimum size that filters this part of the calls leaves little to gain by a larger one.
const MOST_CALLS: f64 = 0.9;

/// Returns a warning if tracing allocations of at least `min_size` takes too much of the target's time.
pub(super) fn warning(calls: &CallRate, busy: Duration, costs: CallCosts, min_size: Bytes) -> Option<String> {
    let slowdown = |costs, size| estimate(calls, busy, costs, size).slowdown;
    let expected = slowdown(costs, min_size).filter(|&share| share > TOLERATED)?;
    let without_stacks = slowdown(CallCosts { stack: Duration::ZERO, ..costs }, min_size);
    let size = worthwhile_size(calls, min_size, |size| slowdown(costs, size).is_some_and(|share| share <= TOLERATED));
    let options = [
        (String::from("--max-depth 0"), without_stacks),
        (format!("--min-size {}", format::size_argument(size.0)), slowdown(costs, size)),
    ];
    let lower = options.into_iter().filter_map(|(option, share)| {
        let share = share.filter(|share| *share <= expected * WORTHWHILE)?;
        Some((option, format::rough_percent(share)))
    });
    let advice = match &lower.collect::<Vec<_>>()[..] {
        [] => String::from("`memtrace faults --sample 64` costs a fraction, and shows resident pages"),
        [(option, share), others @ ..] => {
            let others = others.iter().map(|(option, share)| format!(", {option} to about {share}"));
            format!("{option} lowers it to about {share}{}", others.collect::<String>())
        }
    };
    Some(format!("warning: this is more than {} of the target's time; {advice}", format::rough_percent(TOLERATED)))
}

/// Returns the smallest power of two above `min_size` with which the overhead `is_tolerated`, or else one that filters
/// most calls.
fn worthwhile_size(calls: &CallRate, min_size: Bytes, is_tolerated: impl Fn(Bytes) -> bool) -> Bytes {
    let sizes = || (0..u64::BITS - 1).map(|power| Bytes(1 << power)).filter(|size| *size > min_size);
    let all = calls.by_class.iter().sum::<u64>() as f64;
    let filters_most = |size: &Bytes| {
        let below = size.0.trailing_zeros() as usize;
        calls.by_class.iter().take(below).sum::<u64>() as f64 >= all * MOST_CALLS
    };
    sizes().find(|&size| is_tolerated(size)).or_else(|| sizes().find(filters_most)).unwrap_or(min_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: CallCosts = CallCosts {
        count: Duration::ZERO,
        traps: Duration::from_micros(1),
        record: Duration::from_micros(1),
        stack: Duration::from_micros(2),
    };
    const SECOND: Duration = Duration::from_secs(1);

    fn warned(counts: &[(usize, u64)], min_size: u64) -> Option<String> {
        let mut by_class = vec![0; 64];
        for &(class, count) in counts {
            by_class[class] = count;
        }
        warning(&CallRate { by_class, during: SECOND }, SECOND, COSTS, Bytes(min_size))
    }

    #[test]
    fn quarter_of_the_targets_time_is_tolerated() {
        // 4 µs a call.
        assert_eq!(warned(&[(6, 62_500)], 0), None);
        assert!(warned(&[(6, 62_600)], 0).is_some());
        assert_eq!(warned(&[], 0), None);
    }

    #[test]
    fn warning_names_options_with_their_effect() {
        // 40 % with all; 20 % without stacks; with 128 bytes 10 % for the traps and 3 % for the large blocks.
        let small_blocks = warned(&[(6, 90_000), (12, 10_000)], 0).unwrap();
        assert_eq!(
            small_blocks,
            "warning: this is more than 25 % of the target's time; --max-depth 0 lowers it to about 20 %, --min-size 128 \
             to about 13 %"
        );
    }

    #[test]
    fn option_without_effect_is_not_named() {
        let costs = CallCosts { record: Duration::ZERO, stack: Duration::ZERO, ..COSTS };
        let mut by_class = vec![0; 64];
        by_class[6] = 500_000;
        let text = warning(&CallRate { by_class, during: SECOND }, SECOND, costs, Bytes(0)).unwrap();
        assert!(!text.contains("--m") && text.contains("memtrace faults --sample 64"), "{text}");
        // The traps alone take 50 %: no size is enough, and 128 filters all calls.
        assert!(warned(&[(6, 500_000)], 0).unwrap().contains("--min-size 128 to about 50 %"));
    }
}
