//! Rows of accounts.

use memtrace_model::{AccountCounters, AccountTotals, Amount};
use rusqlite::{Result, ToSql, Transaction, params, params_from_iter};

use crate::file::text::nanoseconds;
use crate::interval::Interval;

/// Stores the accounts that have changed in an interval.
pub(super) fn write(transaction: &Transaction<'_>, interval: i64, content: &Interval) -> Result<()> {
    let mut row = transaction.prepare_cached(
        "INSERT INTO account VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name,
            name_2 = excluded.name_2, thread = coalesce(excluded.thread, thread)",
    )?;
    for account in &content.account_names {
        let thread = account.thread.map(|tid| tid.0);
        row.execute(params![account.number.0, account.names.first(), account.names.get(1), thread])?;
    }
    let marks = "?, ".repeat(23);
    let mut row = transaction.prepare_cached(&format!("INSERT OR REPLACE INTO account_interval VALUES ({marks}?)"))?;
    for account in &content.accounts {
        let numbers = numbers(&account.totals);
        let peak_at = account.totals.peak_at.map(|at| nanoseconds(at.since_start()));
        let key: [&dyn ToSql; 2] = [&interval, &account.number.0];
        let numbers = numbers.iter().map(|number| number as &dyn ToSql);
        row.execute(params_from_iter(key.into_iter().chain(numbers).chain([&peak_at as &dyn ToSql])))?;
    }
    Ok(())
}

/// Returns the numbers of an account in the order of the columns.
fn numbers(totals: &AccountTotals) -> [i64; 21] {
    let AccountCounters { alloc, free, free_by_others, unmatched_frees } = totals.counters;
    let marks = totals.marks.unwrap_or_default();
    let of = |Amount { bytes, count }: Amount| [bytes.0, count];
    let [alloc, free, by_others] = [alloc, free, free_by_others].map(of);
    let [live, exit, discarded] = [totals.live, totals.exit, totals.discarded].map(of);
    let [low, most_low] = [marks.low.at_least, marks.low.at_most].map(of);
    let [high, most_high] = [marks.high.at_least, marks.high.at_most].map(of);
    [
        alloc[0],
        alloc[1],
        free[0],
        free[1],
        by_others[0],
        by_others[1],
        unmatched_frees,
        live[0],
        live[1],
        exit[0],
        exit[1],
        discarded[0],
        discarded[1],
        low[0],
        most_low[0],
        low[1],
        most_low[1],
        high[0],
        most_high[0],
        high[1],
        most_high[1],
    ]
    .map(u64::cast_signed)
}
