//! Table of accounts: the input of the writers for accounts.

use std::ops::Range;
use std::time::Duration;

use crate::{AccountKeys, AccountTotals, Losses, Samplers, TagFunctionCalls, Tick};

/// Table of accounts, grouped by keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountTable {
    /// Grouping keys of the accounts.
    pub keys: AccountKeys,
    /// Groups of accounts, ordered as in the table.
    pub rows: Vec<AccountRow>,
    /// Totals of all groups.
    pub total: AccountTotals,
    /// Tick at the start of the trace.
    pub start: Tick,
    /// Time of the table, since the start of the trace.
    pub elapsed: Duration,
    /// Losses since the start of the trace.
    pub losses: Losses,
    /// Calls of the functions that change tags. Only the table at the end of the trace has them.
    pub tag_functions: Vec<TagFunctionCalls>,
    /// Samplers of the processes. The numbers of blocks from them are estimates.
    pub samplers: Samplers,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// A group of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// Names of the group, one for each key, not escaped.
    pub names: Vec<String>,
    /// Totals of the group.
    pub totals: AccountTotals,
}

/// Changed groups of accounts in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountInterval {
    /// Begin and end of the interval, since the start of the trace. If they are equal, the rows show a moment.
    pub span: Range<Duration>,
    /// Changed groups, with their totals at the end of the interval and the water marks within the interval.
    pub rows: Vec<AccountRow>,
    /// Totals of all groups, if they have changed.
    pub total: Option<AccountTotals>,
    /// Texts of marks in the interval, with their times since the start of the trace.
    pub marks: Vec<(Duration, String)>,
    /// Losses within the interval.
    pub losses: Losses,
}

impl AccountTable {
    /// Returns the time of a high-water mark since the start of the trace.
    #[must_use]
    pub fn peak_time(&self, totals: &AccountTotals) -> Option<Duration> {
        let start = self.start.since_start();
        totals.peak_at.map(|at| at.since_start().saturating_sub(start))
    }
}
