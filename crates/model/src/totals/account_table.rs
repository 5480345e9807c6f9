//! Table of accounts: the input of the writers for accounts.

use std::ops::Range;
use std::time::Duration;

use crate::{AccountKeys, AccountTotals, Losses, Tick};

/// Table of accounts, grouped by keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccountTable {
    /// Keys by which the accounts are grouped.
    pub keys: AccountKeys,
    /// Groups of accounts, in the order of the table.
    pub rows: Vec<AccountRow>,
    /// Totals of all groups.
    pub total: AccountTotals,
    /// Tick at the start of the trace.
    pub start: Tick,
    /// Time of the table, since the start of the trace.
    pub elapsed: Duration,
    /// Losses since the start of the trace.
    pub losses: Losses,
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

/// Column by which a table of accounts is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccountColumn {
    /// Names of the groups.
    Name,
    /// Live bytes.
    #[default]
    Current,
    /// Live blocks.
    Blocks,
    /// High-water mark of the live bytes.
    High,
    /// Low-water mark of the live bytes.
    Low,
    /// Allocated bytes.
    Allocated,
    /// Freed bytes.
    Freed,
    /// Bytes freed by other threads.
    FreedByOthers,
    /// Bytes held at exit.
    Exit,
    /// Bytes that were live when the process called exec.
    Discarded,
    /// Frees of unknown blocks.
    Unmatched,
    /// Time of the high-water mark.
    PeakTime,
}

impl AccountColumn {
    /// Every column, in the order of the table.
    pub const ALL: &[Self] = &[
        Self::Name,
        Self::Current,
        Self::Blocks,
        Self::High,
        Self::Low,
        Self::Allocated,
        Self::Freed,
        Self::FreedByOthers,
        Self::Exit,
        Self::Discarded,
        Self::Unmatched,
        Self::PeakTime,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Current => "current",
            Self::Blocks => "blocks",
            Self::High => "high",
            Self::Low => "low",
            Self::Allocated => "allocated",
            Self::Freed => "freed",
            Self::FreedByOthers => "freed-by-others",
            Self::Exit => "exit",
            Self::Discarded => "discarded",
            Self::Unmatched => "unmatched",
            Self::PeakTime => "peak-time",
        }
    }

    /// Returns the value by which rows are sorted; 0 for names.
    #[must_use]
    pub fn value(self, totals: &AccountTotals) -> u64 {
        let marks = totals.marks.unwrap_or_default();
        match self {
            Self::Name => 0,
            Self::Current => totals.live.bytes.0,
            Self::Blocks => totals.live.count,
            Self::High => marks.high.at_most.bytes.0,
            Self::Low => marks.low.at_least.bytes.0,
            Self::Allocated => totals.counters.alloc.bytes.0,
            Self::Freed => totals.counters.free.bytes.0,
            Self::FreedByOthers => totals.counters.free_by_others.bytes.0,
            Self::Exit => totals.exit.bytes.0,
            Self::Discarded => totals.discarded.bytes.0,
            Self::Unmatched => totals.counters.unmatched_frees,
            Self::PeakTime => totals.peak_at.map_or(0, |at| u64::from(at.0)),
        }
    }
}

impl AccountTable {
    /// Returns the time of a high-water mark since the start of the trace.
    #[must_use]
    pub fn peak_time(&self, totals: &AccountTotals) -> Option<Duration> {
        let start = self.start.since_start();
        totals.peak_at.map(|at| at.since_start().saturating_sub(start))
    }

    /// Sorts the rows by a column, the largest first, or by name. Rows with equal values are sorted by high-water mark.
    pub fn sort(&mut self, column: AccountColumn) {
        self.rows.sort_by(|one, other| {
            let value = |column: AccountColumn| [one, other].map(|row| column.value(&row.totals));
            let descending = |[one, other]: [u64; 2]| other.cmp(&one);
            let by_column = descending(value(column));
            // Processes that have ended all have 0 live bytes, so the high-water mark decides.
            let is_by_name = column == AccountColumn::Name;
            let by_peak = if is_by_name { by_column } else { by_column.then(descending(value(AccountColumn::High))) };
            by_peak.then_with(|| one.names.cmp(&other.names))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amount, AmountBounds, Bytes, MarkBounds};

    #[test]
    fn rows_are_sorted_by_value_then_by_name() {
        let row = |name: &str, bytes| AccountRow {
            names: vec![name.to_owned()],
            totals: AccountTotals { live: Amount { bytes: Bytes(bytes), count: 1 }, ..AccountTotals::default() },
        };
        let mut table = AccountTable { rows: vec![row("b", 1), row("c", 7), row("a", 1)], ..AccountTable::default() };
        let names = |table: &AccountTable| table.rows.iter().map(|row| row.names[0].clone()).collect::<String>();
        table.sort(AccountColumn::Current);
        assert_eq!(names(&table), "cab");
        table.sort(AccountColumn::Name);
        assert_eq!(names(&table), "abc");
    }

    #[test]
    fn marks_are_sorted_by_the_bound_that_is_shown() {
        let amount = |bytes| Amount { bytes: Bytes(bytes), count: 1 };
        let bounds = |[least, most]: [u64; 2]| AmountBounds { at_least: amount(least), at_most: amount(most) };
        let row = |name: &str, low, high| AccountRow {
            names: vec![name.to_owned()],
            totals: AccountTotals {
                marks: Some(MarkBounds { low: bounds(low), high: bounds(high) }),
                ..AccountTotals::default()
            },
        };
        let rows = vec![row("a", [3, 3], [5, 6]), row("b", [1, 9], [9, 9]), row("c", [2, 2], [1, 20])];
        let mut table = AccountTable { rows, ..AccountTable::default() };
        let mut sorted = |column| {
            table.sort(column);
            table.rows.iter().map(|row| row.names[0].clone()).collect::<String>()
        };
        assert_eq!([AccountColumn::High, AccountColumn::Low].map(&mut sorted), ["cba", "acb"]);
    }
}
