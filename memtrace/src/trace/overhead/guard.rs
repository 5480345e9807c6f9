//! Comparison of the overhead during a trace with the limit of the user.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::options::units::Percent;

/// Time that the overhead may exceed the limit.
const TOLERATED_FOR: Duration = Duration::from_secs(15);

/// Action after a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Keep,
    /// Raise the minimum size.
    Raise,
    /// End the trace.
    Detach,
}

/// Decides about a trace that costs the targets more than the limit.
#[derive(Debug)]
pub(super) struct OverheadGuard {
    /// Maximum share of the target's processor time.
    limit: f64,
    /// Start of the time with too high an overhead; `None` if the last overhead was within the limit.
    over_since: Option<Instant>,
    has_raised: bool,
}

impl OverheadGuard {
    pub(super) fn new(limit: Percent) -> Self {
        Self { limit: limit.share(), over_since: None, has_raised: false }
    }

    pub(super) const fn limit(&self) -> f64 {
        self.limit
    }

    /// Decides after a period. `overhead`: time that tracing took in this period, as a share of the target's processor
    /// time.
    pub(super) fn check(&mut self, period: Range<Instant>, overhead: f64) -> Action {
        if overhead <= self.limit {
            self.over_since = None;
            return Action::Keep;
        }
        let since = *self.over_since.get_or_insert(period.start);
        if period.end.saturating_duration_since(since) < TOLERATED_FOR {
            return Action::Keep;
        }
        self.over_since = None;
        if std::mem::replace(&mut self.has_raised, true) { Action::Detach } else { Action::Raise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the actions after periods of 5 s with these overheads, in percent, and a limit of 10 %.
    fn actions(percents: &[u32]) -> Vec<Action> {
        let (mut guard, mut start) = (OverheadGuard::new(Percent(10)), Instant::now());
        let next = |&percent: &u32| {
            let end = start + Duration::from_secs(5);
            let action = guard.check(start..end, Percent(percent).share());
            start = end;
            action
        };
        percents.iter().map(next).collect()
    }

    #[test]
    fn overhead_within_the_limit_changes_nothing() {
        assert_eq!(actions(&[10; 20]), [Action::Keep; 20]);
    }

    #[test]
    fn third_period_above_the_limit_raises_the_minimum_size() {
        use Action::{Keep, Raise};
        assert_eq!(actions(&[11, 300, 11]), [Keep, Keep, Raise]);
        assert_eq!(actions(&[11, 11, 10, 11, 11, 11]), [Keep, Keep, Keep, Keep, Keep, Raise]);
    }

    #[test]
    fn minimum_size_is_raised_once() {
        use Action::{Detach, Keep, Raise};
        assert_eq!(actions(&[11; 6]), [Keep, Keep, Raise, Keep, Keep, Detach]);
        let later = [11, 11, 11, 5, 5, 11, 11, 11];
        assert_eq!(actions(&later), [Keep, Keep, Raise, Keep, Keep, Keep, Keep, Detach]);
    }

    #[test]
    fn long_period_above_the_limit_suffices() {
        let (mut guard, start) = (OverheadGuard::new(Percent(10)), Instant::now());
        assert_eq!(guard.check(start..start + TOLERATED_FOR, 0.11), Action::Raise);
    }
}
