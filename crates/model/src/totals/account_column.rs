//! Sort columns of a table of accounts.

use super::account::AccountTotals;
use super::account_table::AccountRow;

/// Sort column of a table of accounts.
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
    /// Every column, ordered as in the table.
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

    /// Returns the sort key of a row: the number in the column; 0 for names.
    fn value(self, totals: &AccountTotals) -> u64 {
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

    /// Sorts rows by the column, the largest first, or by name. Rows with equal values are sorted by high-water mark.
    pub fn sort_rows(self, rows: &mut [AccountRow]) {
        rows.sort_by(|one, other| {
            let value = |column: Self| [one, other].map(|row| column.value(&row.totals));
            let descending = |[one, other]: [u64; 2]| other.cmp(&one);
            let by_column = descending(value(self));
            // Processes that have ended all have 0 live bytes, so the high-water mark decides.
            let by_peak = if self == Self::Name { by_column } else { by_column.then(descending(value(Self::High))) };
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
        let mut rows = vec![row("b", 1), row("c", 7), row("a", 1)];
        let names = |rows: &[AccountRow]| rows.iter().map(|row| row.names[0].clone()).collect::<String>();
        AccountColumn::Current.sort_rows(&mut rows);
        assert_eq!(names(&rows), "cab");
        AccountColumn::Name.sort_rows(&mut rows);
        assert_eq!(names(&rows), "abc");
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
        let mut rows = vec![row("a", [3, 3], [5, 6]), row("b", [1, 9], [9, 9]), row("c", [2, 2], [1, 20])];
        let mut sorted = |column: AccountColumn| {
            column.sort_rows(&mut rows);
            rows.iter().map(|row| row.names[0].clone()).collect::<String>()
        };
        assert_eq!([AccountColumn::High, AccountColumn::Low].map(&mut sorted), ["cba", "acb"]);
    }
}
