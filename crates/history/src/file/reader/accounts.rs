//! Accounts of a recording.

use std::collections::BTreeMap;

use memtrace_model::{
    AccountCounters, AccountNumber, AccountTotals, Amount, AmountBounds, Bytes, MarkBounds, Tick, Tid,
};
use rusqlite::Row;

use super::Recording;
use super::query::Query;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::schema::ACCOUNT;
use crate::interval::AccountNames;

/// Returns the accounts at the boundary `at`, with the water marks since the boundary `from`. If an account has not
/// changed since then, its water marks are its live amount.
pub(super) fn accounts(
    recording: &Recording,
    from: Boundary,
    at: Boundary,
) -> Result<BTreeMap<AccountNumber, AccountTotals>, Error> {
    let mut accounts: BTreeMap<AccountNumber, AccountTotals> = BTreeMap::new();
    if !recording.connection.has_table("account_interval")? {
        return Ok(accounts);
    }
    let sql = format!(
        "SELECT interval, account, {ACCOUNT} FROM account_interval WHERE interval <= ? ORDER BY account, interval"
    );
    let mut last = None;
    recording.connection.each_row(&sql, [at.id], |row| {
        let (interval, number) = (row.get::<_, i64>(0)?, AccountNumber(row.get(1)?));
        let totals = account(row)?;
        let is_first = last != Some(number);
        last = Some(number);
        let known = accounts.entry(number).or_insert(totals);
        *known = if interval <= from.id {
            // The water marks begin with the live amount at `from`.
            totals.unchanged()
        } else if is_first {
            totals
        } else {
            known.followed_by(totals)
        };
        Ok(())
    })?;
    Ok(accounts)
}

/// Calls `each` for every row of an account up to the boundary `to`, in order of time. The arguments are the end of
/// the interval, the account, and its totals at this end with the water marks within the interval. After an
/// incomplete merge, an account can have several rows of an interval.
pub(super) fn each_account_row(
    recording: &Recording,
    to: Boundary,
    mut each: impl FnMut(Boundary, AccountNumber, AccountTotals),
) -> Result<(), Error> {
    if !recording.connection.has_table("account_interval")? {
        return Ok(());
    }
    let sql =
        format!("SELECT interval, account, {ACCOUNT} FROM account_interval WHERE interval <= ? ORDER BY interval");
    recording.connection.each_row(&sql, [to.id], |row| {
        each(recording.boundary_of(row.get(0)?), AccountNumber(row.get(1)?), account(row)?);
        Ok(())
    })
}

/// Returns the names of the accounts.
pub(super) fn account_names(recording: &Recording) -> Result<Vec<AccountNames>, Error> {
    let mut accounts = Vec::new();
    if !recording.connection.has_table("account_interval")? {
        return Ok(accounts);
    }
    recording.connection.each_row("SELECT * FROM account", [], |row| {
        let names = [row.get::<_, Option<String>>("name")?, row.get("name_2")?];
        let thread = match row.get::<_, Option<u32>>("thread") {
            // Recordings of earlier versions lack this column.
            Err(rusqlite::Error::InvalidColumnName(_)) => None,
            thread => thread?,
        };
        accounts.push(AccountNames {
            number: AccountNumber(row.get("id")?),
            names: names.into_iter().flatten().collect(),
            thread: thread.map(Tid),
        });
        Ok(())
    })?;
    Ok(accounts)
}

fn account(row: &Row<'_>) -> Result<AccountTotals, Error> {
    let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let amount = |bytes: usize, count: usize| -> Result<Amount, Error> {
        Ok(Amount { bytes: Bytes(number(bytes)?), count: number(count)? })
    };
    let bounds = |first: usize| -> Result<AmountBounds, Error> {
        Ok(AmountBounds { at_least: amount(first, first + 2)?, at_most: amount(first + 1, first + 3)? })
    };
    let peak_at: Option<i64> = row.get(23)?;
    let peak_at = peak_at.map(|at| Tick::at(std::time::Duration::from_nanos(at.cast_unsigned())));
    Ok(AccountTotals {
        counters: AccountCounters {
            alloc: amount(2, 3)?,
            free: amount(4, 5)?,
            free_by_others: amount(6, 7)?,
            unmatched_frees: number(8)?,
        },
        live: amount(9, 10)?,
        exit: amount(11, 12)?,
        discarded: amount(13, 14)?,
        marks: Some(MarkBounds { low: bounds(15)?, high: bounds(19)? }),
        peak_at,
    })
}
