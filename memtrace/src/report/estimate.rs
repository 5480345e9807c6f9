//! How far estimated numbers may be off.

use crate::model::{Bytes, Metric, PAGE, Profile, Usage, Variance};

/// Standard deviations: of a thousand estimates three are further off.
const DEVIATIONS: f64 = 3.0;

/// How far `metric` may be off for stacks whose numbers come to this: in the metric's unit. `None` where it is counted.
///
/// The truth is at most so far above the estimate, and less below it: with z deviations, and the sample's pages standing for
/// c each, c·z²/2 + z·√(V + c²·z²/4), which is the upper end of the score interval of a Poisson count (Brown, Cai and DasGupta,
/// "Interval Estimation in Exponential Families", 2003). It holds where few pages were seen, or none, as z·√V does not.
pub(super) fn error(profile: &Profile, metric: Metric, usage: &Usage, variance: Variance) -> Option<u64> {
    if profile.page_sample < 2 {
        return None;
    }
    let (pages, variance) = match metric {
        Metric::LiveBytes | Metric::LiveCount => (usage.live.count, variance.live),
        Metric::AllocBytes | Metric::AllocCount | Metric::PeakBytes | Metric::StallTime | Metric::StallCount => {
            (usage.alloc.count, variance.alloc)
        }
    };
    let variance = variance as f64;
    let stands_for = f64::from(profile.page_sample).max(variance / pages.max(1) as f64);
    let half = stands_for * DEVIATIONS / 2.0;
    #[expect(clippy::cast_sign_loss, reason = "neither a root nor a square is below zero")]
    let pages = (DEVIATIONS * (half + (variance + half * half).sqrt())).ceil() as u64;
    Some(if metric.counts_bytes() { pages * PAGE.0 } else { pages })
}

/// ` ± 12.00 KiB`, or nothing where the numbers are counted.
pub(super) fn shown(error: Option<u64>, metric: Metric) -> String {
    error.map_or_else(String::new, |error| {
        if metric.counts_bytes() { format!(" ± {}", Bytes(error)) } else { format!(" ± {error}") }
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
