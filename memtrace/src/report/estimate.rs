//! How far estimated numbers may be off.

use crate::model::{Bytes, Metric, PAGE, Profile};

/// Standard deviations: of a thousand estimates three are further off.
const DEVIATIONS: f64 = 3.0;

/// How far `metric` may be off for stacks whose numbers come to this: in the metric's unit. `None` where it is counted.
pub(super) fn error(profile: &Profile, metric: Metric, touched: u64, live_variance: u64) -> Option<u64> {
    let one_in = u64::from(profile.page_sample);
    if one_in < 2 {
        return None;
    }
    let variance = match metric {
        Metric::LiveBytes | Metric::LiveCount => live_variance as f64,
        // Each page of the sample stands for `one_in`, and there are as many of them as that goes into all.
        Metric::AllocBytes | Metric::AllocCount | Metric::PeakBytes | Metric::StallTime | Metric::StallCount => {
            touched as f64 * (one_in - 1) as f64
        }
    };
    #[expect(clippy::cast_sign_loss, reason = "a root is not below zero")]
    let pages = (DEVIATIONS * variance.sqrt()).ceil() as u64;
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

    #[test]
    fn what_is_counted_has_no_error_and_what_is_estimated_the_less_the_more_there_is() {
        let profile = |page_sample| Profile { page_sample, ..Profile::default() };
        assert_eq!(error(&profile(0), Metric::AllocBytes, 1000, 0), None);
        assert_eq!(error(&profile(1), Metric::LiveBytes, 1000, 5), None);
        // 10,000 pages of which 100 were seen: a standard deviation of about a tenth.
        assert_eq!(error(&profile(100), Metric::AllocCount, 10_000, 0), Some(2985));
        assert_eq!(error(&profile(100), Metric::LiveBytes, 0, 100), Some(30 * 4096));
        assert_eq!(shown(Some(4096), Metric::LiveBytes), " ± 4.00 KiB");
        assert_eq!(shown(Some(7), Metric::LiveCount), " ± 7");
    }
}
