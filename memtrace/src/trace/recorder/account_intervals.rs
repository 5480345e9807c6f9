//! Accounts that wait for the interval in which they changed.

use std::collections::VecDeque;

use memtrace_history::Interval;
use memtrace_model::Tick;

use crate::trace::account_interval::AccountInterval;

/// Accounts that have changed in the intervals of a recording, in order of time.
#[derive(Debug, Default)]
pub(super) struct AccountIntervals(VecDeque<AccountInterval>);

impl AccountIntervals {
    /// Adds later intervals.
    pub(super) fn add(&mut self, intervals: Vec<AccountInterval>) {
        self.0.extend(intervals);
    }

    /// Moves the accounts of all intervals until `until` to the interval that ends then.
    pub(super) fn move_to(&mut self, until: Tick, interval: &mut Interval) {
        while let Some(AccountInterval { accounts, names, .. }) =
            self.0.pop_front_if(|interval| interval.until <= until)
        {
            let (account_names, span) = (names, interval.span.clone());
            interval.merge(Interval { span, accounts, account_names, ..Interval::default() });
        }
    }
}
