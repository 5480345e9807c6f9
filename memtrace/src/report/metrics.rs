//! Metrics of a profile, for formats that hold several of them.

use crate::model::{Amount, Bytes, Metric, Profile, StackProfile};
use crate::report::format;

/// Returns the metrics that were measured, in the order of the help. Live amounts of a window of a recording are changes,
/// which can be negative.
pub(super) fn measured(profile: &Profile) -> Vec<Metric> {
    let is_measured = |metric: &Metric| match metric {
        Metric::LiveBytes | Metric::LiveCount => format::shows_live(profile),
        Metric::ExitBytes | Metric::ExitCount => format::shows_exit(profile),
        Metric::PeakBytes => profile.processes.iter().any(|process| process.peak.is_some()),
        Metric::HotBytes | Metric::ColdBytes => profile.touches.is_some(),
        _ => true,
    };
    profile.class.facts().metrics.iter().copied().filter(is_measured).collect()
}

/// Returns the metrics that were measured, with the growth instead of live amounts in a window of a recording. `drawn` is the metric of the
/// report.
pub(super) fn measured_growth(profile: &Profile, drawn: Metric) -> Vec<Metric> {
    let mut metrics = measured(profile);
    if profile.window.is_some() && profile.class.has(Metric::LiveBytes) {
        metrics.retain(|metric| !matches!(metric, Metric::LiveBytes | Metric::LiveCount));
        metrics.insert(0, if drawn == Metric::Growth { drawn } else { Metric::NetGrowth });
    }
    metrics
}

/// Returns the metric among those that were measured that has the values of `drawn`: growth is a change of the live bytes.
pub(super) const fn measured_of(drawn: Metric) -> Metric {
    match drawn {
        Metric::NetGrowth | Metric::Growth => Metric::LiveBytes,
        metric => metric,
    }
}

/// Returns the value of a stack. In a window of a recording, it is negative for a decrease, and if stacks replace their sum.
pub(super) fn signed_value(stack: &StackProfile, metric: Metric) -> i64 {
    stack.value(metric).cast_signed()
}

/// Returns the value of a stack, and 0 instead of a negative one.
pub(super) fn increase(stack: &StackProfile, metric: Metric) -> u64 {
    signed_value(stack, metric).max(0).cast_unsigned()
}

/// Returns an amount of a stack, and 0 instead of a negative one.
pub(super) fn increase_of(amount: Amount) -> Amount {
    let increase = |number: u64| number.cast_signed().max(0).cast_unsigned();
    Amount { bytes: Bytes(increase(amount.bytes.0)), count: increase(amount.count) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{EventClass, ImageEnd, Pid, ProcessProfile};

    #[test]
    fn metrics_that_were_not_measured_are_left_out() {
        let names = |profile: &Profile, drawn| -> Vec<_> {
            measured_growth(profile, drawn).iter().map(|metric| metric.name()).collect()
        };
        let mut profile = Profile { processes: vec![ProcessProfile::new(Pid(1), "a")], ..Profile::default() };
        let live = Metric::LiveBytes;
        assert_eq!(names(&profile, live), ["live-bytes", "live-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.processes[0].ended = Some(ImageEnd::Exit);
        assert_eq!(names(&profile, live), ["exit-bytes", "exit-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.window = Some(Duration::ZERO..Duration::from_secs(1));
        assert_eq!(names(&profile, live), ["net-growth", "alloc-bytes", "alloc-count", "temporary"]);
        assert_eq!(names(&profile, Metric::Growth)[0], "growth");
        profile.class = EventClass::Reclaim;
        assert_eq!(names(&profile, live), ["stall-time", "stall-count"]);
    }

    #[test]
    fn decreases_are_no_large_numbers() {
        let negative = |number: u64| 0_u64.wrapping_sub(number);
        let amount = Amount { bytes: Bytes(negative(7)), count: 3 };
        assert_eq!(increase_of(amount), Amount { bytes: Bytes(0), count: 3 });
        assert_eq!(increase_of(Amount { bytes: Bytes(5), count: negative(1) }), Amount { bytes: Bytes(5), count: 0 });
    }
}
