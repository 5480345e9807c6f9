//! Accounts that wait until their interval is recorded.

use std::collections::VecDeque;

use memtrace_history::Interval;
use memtrace_model::Tick;

use crate::trace::account_interval::AccountInterval;

/// Accounts that have changed in the intervals of a recording, in order of time.
#[derive(Debug, Default)]
pub(super) struct AccountIntervals {
    waiting: VecDeque<AccountInterval>,
    /// End of the last interval; `None` if the run has no accounts.
    until: Option<Tick>,
}

impl AccountIntervals {
    /// Adds later intervals. All intervals up to `until` are known then.
    pub(super) fn add(&mut self, intervals: Vec<AccountInterval>, until: Tick) {
        self.waiting.extend(intervals);
        self.until = Some(until);
    }

    /// Returns `now`, or the end of the last known interval if this is earlier.
    pub(super) fn known_until(&self, now: Tick) -> Tick {
        self.until.map_or(now, |until| until.min(now))
    }

    /// Moves the accounts of all intervals up to `until` to `interval`, which ends at this time.
    pub(super) fn move_to(&mut self, until: Tick, interval: &mut Interval) {
        while let Some(AccountInterval { accounts, names, .. }) =
            self.waiting.pop_front_if(|interval| interval.until <= until)
        {
            let (account_names, span) = (names, interval.span.clone());
            interval.merge(Interval { span, accounts, account_names, ..Interval::default() });
        }
    }
}
