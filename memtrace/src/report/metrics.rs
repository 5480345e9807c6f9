//! Metrics of a profile, for formats that hold several of them.

use crate::model::{Metric, Profile, StackProfile};
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

/// Returns the metrics that were measured and have no negative values.
pub(super) fn measured_unsigned(profile: &Profile) -> Vec<Metric> {
    let is_change = |metric: &Metric| matches!(metric, Metric::LiveBytes | Metric::LiveCount);
    let mut metrics = measured(profile);
    if profile.window.is_some() {
        metrics.retain(|metric| !is_change(metric));
        metrics.insert(0, Metric::NetGrowth);
    }
    metrics
}

/// Returns the value of a stack, which is negative for a decrease.
pub(super) fn signed_value(stack: &StackProfile, metric: Metric) -> i64 {
    stack.value(metric).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{EventClass, ImageEnd, ProcessProfile};

    #[test]
    fn metrics_that_were_not_measured_are_left_out() {
        let names =
            |profile: &Profile| measured_unsigned(profile).iter().map(|metric| metric.name()).collect::<Vec<_>>();
        let mut profile =
            Profile { processes: vec![ProcessProfile::new(crate::model::Pid(1), "a")], ..Profile::default() };
        assert_eq!(names(&profile), ["live-bytes", "live-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.processes[0].ended = Some(ImageEnd::Exit);
        assert_eq!(names(&profile), ["exit-bytes", "exit-count", "alloc-bytes", "alloc-count", "temporary"]);
        profile.window = Some(Duration::ZERO..Duration::from_secs(1));
        assert_eq!(names(&profile), ["net-growth", "alloc-bytes", "alloc-count", "temporary"]);
        profile.class = EventClass::Reclaim;
        profile.window = None;
        assert_eq!(names(&profile), ["stall-time", "stall-count"]);
    }
}
