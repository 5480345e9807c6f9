//! How far estimated numbers may be off.

use crate::model::{Bytes, Metric, PAGE, ProcessProfile, Profile, ResidentKind, Usage};

/// Standard deviations: of a thousand estimates three are further off.
const DEVIATIONS: f64 = 3.0;

/// How far `metric` may be off for stacks whose numbers come to `usage`: in the metric's unit. `None` where it is counted.
pub(super) fn error(profile: &Profile, metric: Metric, usage: &Usage, live_variance: u64) -> Option<u64> {
    let pages = match metric {
        Metric::LiveBytes | Metric::LiveCount => pages(profile, live_variance as f64),
        // What came along with a page that was touched is in both.
        Metric::AllocBytes | Metric::AllocCount | Metric::PeakBytes | Metric::StallTime | Metric::StallCount => {
            pages(profile, one_by_one(profile, usage.alloc.count).max(live_variance as f64))
        }
    };
    in_unit(pages, metric)
}

/// As [`error`], for what was released.
pub(super) fn of_released(profile: &Profile, metric: Metric, usage: &Usage) -> Option<u64> {
    in_unit(of_count(profile, usage.free.count), metric)
}

/// How far a number of pages, or of what happened once to a page, may be off.
pub(super) fn of_count(profile: &Profile, count: u64) -> Option<u64> {
    pages(profile, one_by_one(profile, count))
}

/// How far a number of pages may be off whose variance is estimated to be this.
///
/// The truth is what an estimate so far off would be three deviations away from, not the estimate (Wilson, "Probable
/// Inference, the Law of Succession, and Statistical Inference", 1927): so it holds for few pages too, and for those of whom
/// none was in the sample.
pub(super) fn pages(profile: &Profile, variance: f64) -> Option<u64> {
    let one_in = u64::from(profile.page_sample);
    if one_in < 2 {
        return None;
    }
    let half = DEVIATIONS * DEVIATIONS * (one_in - 1) as f64 / 2.0;
    #[expect(clippy::cast_sign_loss, reason = "neither is below zero")]
    let pages = (half + (DEVIATIONS * DEVIATIONS * variance + half * half).sqrt()).ceil() as u64;
    Some(pages)
}

/// The variance of a number of pages of which each was chosen by itself: each of the sample stands for so many, and there are
/// as many of them as that goes into all.
fn one_by_one(profile: &Profile, count: u64) -> f64 {
    count as f64 * f64::from(profile.page_sample.saturating_sub(1))
}

fn in_unit(pages: Option<u64>, metric: Metric) -> Option<u64> {
    if metric.counts_bytes() { pages.map(|pages| bytes(pages).0) } else { pages }
}

/// How far what has a stack of one kind of resident memory, or of several, may be off: in pages.
pub(super) fn of_kind(profile: &Profile, resident: &ResidentKind) -> Option<u64> {
    let error = pages(profile, resident.variance as f64)?;
    Some(within(error, resident.with_stack, resident.total))
}

/// How far what a process has resident by its stacks may be off, in pages.
pub(super) fn of_process(profile: &Profile, process: &ProcessProfile, live_variance: u64) -> Option<u64> {
    let error = pages(profile, live_variance as f64)?;
    Some(most_of(process).map_or(error, |most| within(error, process.total.live.bytes, most)))
}

/// More than this a process' stacks cannot have resident; `None` where that is not known.
pub(super) fn most_of(process: &ProcessProfile) -> Option<Bytes> {
    match (&process.resident, process.ended) {
        (Some(residence), _) => Some(residence.sum().total),
        (None, Some(_)) => Some(Bytes(0)),
        (None, None) => None,
    }
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

/// ` ± 12.00 KiB`, or nothing where the numbers are counted.
pub(super) fn shown(error: Option<u64>, metric: Metric) -> String {
    error.map_or_else(String::new, |error| {
        if metric.counts_bytes() { format!(" ± {}", Bytes(error)) } else { format!(" ± {error}") }
    })
}

/// The variance of the live pages of each process, by its index.
pub(super) fn of_processes(profile: &Profile) -> Vec<u64> {
    let mut variances = vec![0_u64; profile.processes.len()];
    for stack in &profile.stacks {
        if let Some(variance) = variances.get_mut(stack.process) {
            *variance = variance.saturating_add(stack.live_variance);
        }
    }
    variances
}

/// The variance of all live pages.
pub(super) fn of_all(profile: &Profile) -> u64 {
    profile.stacks.iter().fold(0, |sum: u64, stack| sum.saturating_add(stack.live_variance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Amount;

    fn profile(page_sample: u32) -> Profile {
        Profile { page_sample, ..Profile::default() }
    }

    fn usage(touched: u64, released: u64) -> Usage {
        let pages = |count| Amount { bytes: bytes(count), count };
        Usage { alloc: pages(touched), free: pages(released), ..Usage::default() }
    }

    #[test]
    fn what_is_counted_has_no_error_and_what_is_estimated_the_less_the_more_there_is() {
        assert_eq!(error(&profile(0), Metric::AllocBytes, &usage(1000, 0), 0), None);
        assert_eq!(error(&profile(1), Metric::LiveBytes, &usage(1000, 0), 5), None);
        // 10,000 pages of which 100 were seen: a standard deviation of about a tenth. Half of 3² · 99 is 445.5, and
        // √(3² · 10,000 · 99 + 445.5²) is 3017.9.
        assert_eq!(error(&profile(100), Metric::AllocCount, &usage(10_000, 0), 0), Some(3464));
        assert_eq!(of_released(&profile(100), Metric::LiveCount, &usage(0, 10_000)), Some(3464));
        assert_eq!(error(&profile(100), Metric::LiveBytes, &usage(0, 0), 990_000), Some(3464 * 4096));
        assert_eq!(error(&profile(100), Metric::AllocCount, &usage(10, 0), 990_000), Some(3464), "large pages");
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
    fn of_whom_no_page_was_in_the_sample_there_may_be_so_many_that_this_would_be_three_deviations_off() {
        let one_in = 64.0;
        let most = of_count(&profile(64), 0).unwrap() as f64;
        assert!((most - 9.0 * (one_in - 1.0)).abs() < 1e-6, "{most}");
        let deviation = (most * (one_in - 1.0)).sqrt();
        assert!((most - 3.0 * deviation).abs() < 1e-6, "{most} {deviation}");
    }
}
