//! Accounts of a recording.

use std::collections::BTreeMap;
use std::ops::Range;

use super::moments::Selected;
use crate::accounts;
use crate::model::{AccountNumber, AccountRow, AccountTable, AccountTotals, GroupBy, format};
use crate::recording::{self, Boundary, Recording};
use crate::session::recorded_facts::RecordedFacts;

/// Returns the accounts by `keys` that are selected, not sorted. `notes` are those on the selection.
pub(super) fn table(
    recording: &Recording,
    facts: &RecordedFacts,
    selected: &Selected,
    keys: Vec<GroupBy>,
    mut notes: Vec<String>,
) -> Result<AccountTable, recording::Error> {
    let to = selected.to();
    let mut accounts = recording.accounts(selected.from(), to)?;
    let total = accounts.remove(&AccountNumber::TOTAL).unwrap_or_default();
    let names: BTreeMap<AccountNumber, Vec<String>> =
        recording.account_names()?.into_iter().map(|account| (account.number, account.names)).collect();
    let named = accounts.into_iter().filter(|(_, totals)| has_amounts(totals)).map(|(number, totals)| {
        let unknown = || vec![format!("[account {}]", number.0); keys.len()];
        (names.get(&number).filter(|names| names.len() == keys.len()).cloned().unwrap_or_else(unknown), totals)
    });
    let is_by_process = keys.iter().any(|key| matches!(key, GroupBy::Process | GroupBy::Thread));
    let most = total.marks.unwrap_or_default().high.at_most;
    let rows = accounts::add_up(named, is_by_process, most).map(|(names, totals)| AccountRow { names, totals });
    if selected.is_end_of(recording) {
        notes.extend(facts.notes());
    }
    if selected.is_window() {
        let Range { start, end } = selected.span();
        notes.push(format!(
            "water marks are those from {} to {}; other numbers count from the start of the trace",
            format::duration(start),
            format::duration(end)
        ));
    }
    Ok(AccountTable {
        rows: rows.collect(),
        keys,
        total,
        start: facts.span().0,
        elapsed: selected.after_start(selected.times().end),
        losses: recording.losses(Boundary::START, to)?,
        notes,
    })
}

/// Returns false for an account whose amounts were moved to another one.
fn has_amounts(totals: &AccountTotals) -> bool {
    AccountTotals { marks: None, peak_at: None, ..*totals } != AccountTotals::default()
}
