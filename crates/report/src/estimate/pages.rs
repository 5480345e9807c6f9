//! Errors of estimates from sampled pages: the distance from the estimate to the upper end of its interval. The lower end
//! is closer.

use memtrace_model::format as number;
use memtrace_model::{Bytes, Measure, PAGE, Profile, Quantities, Quantity, ResidentKind};

use super::margin::Margin;

/// Returns the error of `quantity` in its unit; `None` if pages are not sampled, or in a window of a recording.
/// `quantity` must be of live or touched pages.
pub(crate) fn error(profile: &Profile, quantity: Quantity, usage: &Quantities) -> Option<u64> {
    let (pages, huge, variance) = match quantity {
        Quantity::LiveBytes | Quantity::LiveCount => (usage.live(), Quantity::HugeLiveBytes, Quantity::LiveVariance),
        _ => (usage.alloc(), Quantity::HugeAllocBytes, Quantity::AllocVariance),
    };
    let estimated = pages.count.saturating_sub(usage[huge] / PAGE.0);
    in_unit(pages_error(profile, estimated, usage[variance]), quantity.facts().measure)
}

/// Returns the error of the number or the bytes of released pages; `None` in the same cases as [`error`].
///
/// The variance is at most the variance of touches minus the variance of live pages. A page that was touched k times
/// adds k² to the variance of touches. If the page is live, it was released k - 1 times: it adds 1 to the variance of
/// live pages, and (k - 1)² to the variance of releases. This is at most k² - 1.
pub(crate) fn released_error(profile: &Profile, measure: Measure, usage: &Quantities) -> Option<u64> {
    let variance = usage[Quantity::AllocVariance].saturating_sub(usage[Quantity::LiveVariance]);
    let huge = usage[Quantity::HugeAllocBytes].saturating_sub(usage[Quantity::HugeLiveBytes]);
    in_unit(pages_error(profile, usage.free().count.saturating_sub(huge / PAGE.0), variance), measure)
}

/// Returns the error of a count of events that occur at most once per page.
pub(crate) fn count_error(profile: &Profile, count: u64) -> Option<u64> {
    pages_error(profile, count, count.saturating_mul(u64::from(profile.run.page_sample.saturating_sub(1))))
}

/// Returns the error of an estimated number of pages with this estimated variance; `None` if pages are not sampled, or
/// in a window of a recording. `pages` must not include counted huge pages, because they have no error.
fn pages_error(profile: &Profile, pages: u64, variance: u64) -> Option<u64> {
    // Changes between two moments of a recording have no errors.
    if profile.run.page_sample < 2 || profile.run.window.is_some() {
        return None;
    }
    // Each sampled page stands for at least `page_sample` pages.
    let unit = f64::from(profile.run.page_sample).max(variance as f64 / pages.max(1) as f64);
    Some(Margin::of_score(variance.into(), unit).above)
}

fn in_unit(pages: Option<u64>, measure: Measure) -> Option<u64> {
    if measure == Measure::Bytes { pages.map(|pages| size_of_pages(pages).0) } else { pages }
}

/// Returns the error, in pages, of the bytes with a stack in a kind of memory. The true value is between the counted
/// bytes and the upper bound.
pub(crate) fn kind_error(profile: &Profile, resident: &ResidentKind) -> Option<u64> {
    let range = [resident.counted, resident.most_with_stack()];
    Some(limited(unlimited_kind_error(profile, resident)?, resident.explained(), range))
}

/// Returns the error, in pages, of the bytes without a recorded touch in a kind of memory. These bytes are an exact
/// number minus the bytes with a stack, so both have the same error.
pub(crate) fn other_error(profile: &Profile, resident: &ResidentKind) -> Option<u64> {
    let most = Bytes(resident.most_with_stack().0.saturating_sub(resident.counted.0));
    Some(limited(unlimited_kind_error(profile, resident)?, resident.other(), [Bytes(0), most]))
}

fn unlimited_kind_error(profile: &Profile, resident: &ResidentKind) -> Option<u64> {
    let estimated = resident.with_stack.0.saturating_sub(resident.counted.0);
    pages_error(profile, estimated / PAGE.0, resident.variance)
}

/// Limits an error, in pages. The true value is between `least` and `most`, so the error is at most the distance of the
/// estimate from these bounds.
pub(crate) fn limited(error: u64, estimate: Bytes, [least, most]: [Bytes; 2]) -> u64 {
    let beyond = estimate.0.saturating_sub(least.0).max(most.0.saturating_sub(estimate.0));
    error.min(beyond.div_ceil(PAGE.0))
}

/// Returns the size of `pages` pages.
pub(crate) const fn size_of_pages(pages: u64) -> Bytes {
    Bytes(pages.saturating_mul(PAGE.0))
}

/// Formats an error as ` ± 12.00 KiB`. Returns an empty text if the number is exact.
pub(crate) fn format_error(error: Option<u64>, measure: Measure) -> String {
    error.map_or_else(String::new, |error| {
        if measure == Measure::Bytes {
            format!(" ± {}", Bytes(error))
        } else {
            format!(" ± {}", number::grouped(error))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use memtrace_model::Amount;
    use memtrace_model::RunFacts;

    const ONE_IN: u32 = 64;

    fn profile(page_sample: u32) -> Profile {
        Profile { run: RunFacts { page_sample, ..RunFacts::default() }, ..Profile::default() }
    }

    /// Returns the usage and the variance of `pages` sampled pages, each touched `times` times.
    fn touched(pages: u64, times: u64) -> Quantities {
        let one_in = u64::from(ONE_IN);
        let alloc = Amount { bytes: Bytes(0), count: pages * times * one_in };
        let variance = pages * times * times * one_in * (one_in - 1);
        Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc).with(Quantity::AllocVariance, variance)
    }

    #[test]
    fn only_estimates_have_an_error() {
        let usage = touched(100, 1);
        assert_eq!(error(&profile(0), Quantity::AllocBytes, &usage), None);
        assert_eq!(error(&profile(1), Quantity::LiveBytes, &usage), None);
        let pages = error(&profile(ONE_IN), Quantity::AllocCount, &usage).unwrap();
        assert_eq!(error(&profile(ONE_IN), Quantity::AllocBytes, &usage), Some(pages * 4096));
        assert_eq!(format_error(Some(4096), Measure::Bytes), " ± 4.00 KiB");
        assert_eq!(format_error(Some(7), Measure::Count), " ± 7");
    }

    #[test]
    fn an_error_is_limited_by_the_possible_range() {
        let limit =
            |estimate, least, most| limited(100, size_of_pages(estimate), [size_of_pages(least), size_of_pages(most)]);
        assert_eq!([limit(0, 0, 7), limit(64, 0, 70), limit(64, 0, 700), limit(0, 0, 0)], [7, 64, 100, 0]);
        assert_eq!([limit(64, 60, 70), limit(64, 64, 64)], [6, 0]);
    }

    #[test]
    fn released_pages_have_the_error_of_touched_pages() {
        let usage = touched(100, 3);
        let released = usage.with_free(usage.alloc());
        let profile = profile(ONE_IN);
        let error = error(&profile, Quantity::AllocCount, &usage);
        assert_eq!(released_error(&profile, Measure::Count, &released), error);
        let usage = touched(100, 1);
        assert_eq!(count_error(&profile, usage.alloc().count), super::error(&profile, Quantity::AllocCount, &usage));
    }

    #[test]
    fn counted_huge_pages_have_no_error() {
        let small = touched(100, 1);
        let huge = Amount { bytes: Bytes(1 << 30), count: (1 << 30) / PAGE.0 };
        let mut usage = small.with(Quantity::HugeAllocBytes, huge.bytes.0);
        usage.add_amount(Quantity::AllocBytes, huge);
        let profile = profile(ONE_IN);
        let of_small = error(&profile, Quantity::AllocCount, &small);
        assert_eq!(error(&profile, Quantity::AllocCount, &usage), of_small);
        assert_eq!(released_error(&profile, Measure::Count, &usage), of_small);
        // If all memory is in counted huge pages, no other page can have a stack.
        let resident = |total| ResidentKind {
            total: Bytes(total),
            with_stack: huge.bytes,
            counted: huge.bytes,
            ..ResidentKind::default()
        };
        let errors = |total| [kind_error(&profile, &resident(total)), other_error(&profile, &resident(total))];
        assert_eq!(errors(1 << 30), [Some(0), Some(0)]);
        assert_eq!(errors((1 << 30) + 3 * PAGE.0), [Some(3), Some(3)]);
    }

    #[test]
    fn an_estimate_beyond_the_resident_memory_is_limited() {
        let resident = ResidentKind {
            total: size_of_pages(1000),
            with_stack: size_of_pages(1280),
            counted: size_of_pages(512),
            before: size_of_pages(100),
            variance: 12 * 64 * 63,
        };
        assert_eq!((resident.explained(), resident.other()), (size_of_pages(900), Bytes(0)));
        let profile = profile(ONE_IN);
        let errors = [kind_error(&profile, &resident), other_error(&profile, &resident)];
        assert_eq!(errors, [Some(388), Some(388)]);
    }

    /// For several true values, sums the probabilities of all samples with an estimate that is off by more than its
    /// error.
    #[test]
    fn five_estimates_in_a_hundred_exceed_their_error() {
        for times in [1, 5] {
            for truth in [0.5, 1.0, 4.0, 12.0, 30.0, 200.0, 2000.0] {
                let mut unlikely = 0.0;
                // Logarithm of the probability of `seen` sampled pages, by a Poisson distribution.
                let mut likely = -truth;
                // If no page is sampled, the number of touches per page is unknown, so this case counts only for one touch.
                let first = if times == 1 { 0 } else { 1 };
                for seen in 0..10_000_u32 {
                    let usage = touched(seen.into(), times);
                    let error = error(&profile(ONE_IN), Quantity::AllocCount, &usage).unwrap();
                    let off = f64::abs(f64::from(seen) - truth) * f64::from(ONE_IN) * times as f64;
                    if seen >= first && off > error as f64 {
                        unlikely += f64::exp(likely);
                    }
                    likely += f64::ln(truth / f64::from(seen + 1));
                }
                assert!(unlikely <= 0.05, "{truth} pages, each {times} times: {unlikely}");
            }
        }
    }
}
