//! How far estimated numbers may be off.

use crate::model::format as number;
use crate::model::{Bytes, Metric, PAGE, Profile, ResidentKind, Usage, Variance};

/// Standard deviations: of a thousand estimates three are further off.
const DEVIATIONS: f64 = 3.0;

/// How far `metric` may be off for stacks whose numbers come to this: in the metric's unit. `None` where it is counted.
pub(super) fn error(profile: &Profile, metric: Metric, usage: &Usage, variance: Variance) -> Option<u64> {
    let pages = match metric {
        Metric::LiveBytes | Metric::LiveCount => of_pages(profile, usage.live.count, variance.live),
        Metric::AllocBytes | Metric::AllocCount | Metric::PeakBytes | Metric::StallTime | Metric::StallCount => {
            of_pages(profile, usage.alloc.count, variance.alloc)
        }
    };
    in_unit(pages, metric)
}

/// As [`error`], for what was released. A page that was touched k times, and is not there as often, adds k² to the one variance;
/// and one that is there adds (k - 1)² to this one, which is at most k² - 1.
pub(super) fn of_released(profile: &Profile, metric: Metric, usage: &Usage, variance: Variance) -> Option<u64> {
    in_unit(of_pages(profile, usage.free.count, variance.alloc.saturating_sub(variance.live)), metric)
}

/// How far a number of what happened once to a page may be off.
pub(super) fn of_count(profile: &Profile, count: u64) -> Option<u64> {
    of_pages(profile, count, count.saturating_mul(u64::from(profile.page_sample.saturating_sub(1))))
}

/// How far so many pages may be off, of which the variance is estimated too.
///
/// The truth is at most so far above the estimate, and less below it: with z deviations, and the sample's pages standing for
/// c each, c·z²/2 + z·√(V + c²·z²/4), which is the upper end of the score interval of a Poisson count (Brown, Cai and DasGupta,
/// "Interval Estimation in Exponential Families", 2003). It holds where few pages were seen, or none, as z·√V does not.
fn of_pages(profile: &Profile, pages: u64, variance: u64) -> Option<u64> {
    if profile.page_sample < 2 {
        return None;
    }
    let variance = variance as f64;
    let stands_for = f64::from(profile.page_sample).max(variance / pages.max(1) as f64);
    let half = stands_for * DEVIATIONS / 2.0;
    #[expect(clippy::cast_sign_loss, reason = "neither a root nor a square is below zero")]
    let pages = (DEVIATIONS * (half + (variance + half * half).sqrt())).ceil() as u64;
    Some(pages)
}

fn in_unit(pages: Option<u64>, metric: Metric) -> Option<u64> {
    if metric.counts_bytes() { pages.map(|pages| bytes(pages).0) } else { pages }
}

/// How far what has a stack of one kind of resident memory, or of several, may be off: in pages.
pub(super) fn of_kind(profile: &Profile, resident: &ResidentKind) -> Option<u64> {
    let error = of_pages(profile, resident.with_stack.0 / PAGE.0, resident.variance)?;
    Some(within(error, resident.with_stack, resident.total))
}

/// An error, in pages, of an estimate of something of which it is known that it is not more than `most`.
pub(super) fn within(error: u64, estimate: Bytes, most: Bytes) -> u64 {
    let beyond = estimate.0.max(most.0.saturating_sub(estimate.0));
    error.min(beyond.div_ceil(PAGE.0))
}

/// So many pages.
pub(super) const fn bytes(pages: u64) -> Bytes {
    Bytes(pages.saturating_mul(PAGE.0))
}

/// How uncertain the numbers of each process are, by its index.
pub(super) fn of_processes(profile: &Profile) -> Vec<Variance> {
    let mut variances = vec![Variance::default(); profile.processes.len()];
    for stack in &profile.stacks {
        if let Some(variance) = variances.get_mut(stack.process) {
            *variance += stack.variance;
        }
    }
    variances
}

/// How uncertain the numbers of all stacks together are.
pub(super) fn of_all(profile: &Profile) -> Variance {
    profile.stacks.iter().fold(Variance::default(), |mut sum, stack| {
        sum += stack.variance;
        sum
    })
}

/// ` ± 12.00 KiB`, or nothing where the numbers are counted.
pub(super) fn shown(error: Option<u64>, metric: Metric) -> String {
    error.map_or_else(String::new, |error| {
        if metric.counts_bytes() { format!(" ± {}", Bytes(error)) } else { format!(" ± {}", number::grouped(error)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::Amount;

    const ONE_IN: u32 = 64;

    fn profile(page_sample: u32) -> Profile {
        Profile { page_sample, ..Profile::default() }
    }

    /// What was touched, where so many pages of a sample were, each as often.
    fn touched(pages: u64, times: u64) -> (Usage, Variance) {
        let one_in = u64::from(ONE_IN);
        let alloc = Amount { bytes: Bytes(0), count: pages * times * one_in };
        let variance = Variance { live: 0, alloc: pages * times * times }.scaled(one_in * (one_in - 1));
        (Usage { alloc, ..Usage::default() }, variance)
    }

    #[test]
    fn what_is_counted_has_no_error_and_what_is_estimated_is_shown_with_it() {
        let (usage, variance) = touched(100, 1);
        assert_eq!(error(&profile(0), Metric::AllocBytes, &usage, variance), None);
        assert_eq!(error(&profile(1), Metric::LiveBytes, &usage, variance), None);
        let pages = error(&profile(ONE_IN), Metric::AllocCount, &usage, variance).unwrap();
        assert_eq!(error(&profile(ONE_IN), Metric::AllocBytes, &usage, variance), Some(pages * 4096));
        assert_eq!(shown(Some(4096), Metric::LiveBytes), " ± 4.00 KiB");
        assert_eq!(shown(Some(7), Metric::LiveCount), " ± 7");
    }

    #[test]
    fn an_error_does_not_go_beyond_what_there_can_be() {
        assert_eq!(within(100, Bytes(0), bytes(7)), 7);
        assert_eq!(within(100, bytes(64), bytes(70)), 64);
        assert_eq!(within(100, bytes(64), bytes(700)), 100);
        assert_eq!(within(100, Bytes(0), Bytes(0)), 0);
    }

    #[test]
    fn what_was_released_is_as_uncertain_as_what_was_touched_where_nothing_is_left() {
        let (usage, variance) = touched(100, 3);
        let released = Usage { free: usage.alloc, ..usage };
        let profile = profile(ONE_IN);
        let error = error(&profile, Metric::AllocCount, &usage, variance);
        assert_eq!(of_released(&profile, Metric::LiveCount, &released, variance), error);
        let (usage, variance) = touched(100, 1);
        assert_eq!(of_count(&profile, usage.alloc.count), super::error(&profile, Metric::AllocCount, &usage, variance));
    }

    /// Whatever the truth is, estimates that are off by more than they say are as rare as they say.
    #[test]
    fn three_estimates_in_a_thousand_are_further_off_than_they_say() {
        for times in [1, 5] {
            for truth in [0.5, 1.0, 4.0, 12.0, 30.0, 200.0, 2000.0] {
                let mut unlikely = 0.0;
                // How likely a sample has so many pages, its logarithm: a Poisson distribution.
                let mut likely = -truth;
                // Of what is not seen it isn't known either how often it comes and goes.
                let first = if times == 1 { 0 } else { 1 };
                for seen in 0..10_000_u32 {
                    let (usage, variance) = touched(seen.into(), times);
                    let error = error(&profile(ONE_IN), Metric::AllocCount, &usage, variance).unwrap();
                    let off = f64::abs(f64::from(seen) - truth) * f64::from(ONE_IN) * times as f64;
                    if seen >= first && off > error as f64 {
                        unlikely += f64::exp(likely);
                    }
                    likely += f64::ln(truth / f64::from(seen + 1));
                }
                assert!(unlikely <= 0.003, "{truth} pages, each {times} times: {unlikely}");
            }
        }
    }
}
