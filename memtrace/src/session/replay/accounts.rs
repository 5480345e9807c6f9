//! Accounts of a recording.

use std::collections::BTreeMap;
use std::ops::Range;

use super::moments::Selected;
use crate::accounts;
use crate::history::{self, Boundary, Recording};
use crate::model::{AccountNumber, AccountRow, AccountTable, GroupBy, format};
use crate::session::recorded_facts::RecordedFacts;

/// Returns the accounts by `keys` that are selected, not sorted. `notes` are those on the selection.
pub(super) fn table(
    recording: &Recording,
    facts: &RecordedFacts,
    selected: &Selected,
    keys: Vec<GroupBy>,
    mut notes: Vec<String>,
) -> Result<AccountTable, history::Error> {
    let to = selected.to();
    let mut accounts = recording.accounts(selected.from(), to)?;
    let total = accounts.remove(&AccountNumber::TOTAL).unwrap_or_default();
    let names = RecordedNames::read(recording, keys.len())?;
    let named = accounts.into_iter().filter(|(_, totals)| totals.has_amounts());
    let named = named.map(|(number, totals)| (names.of(number), totals));
    let most = total.marks.unwrap_or_default().high.at_most;
    let rows = accounts::add_up(named, are_by_process(&keys), most).map(|(names, totals)| AccountRow { names, totals });
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

/// Returns true if accounts by these keys are those of processes or parts of them.
pub(super) fn are_by_process(keys: &[GroupBy]) -> bool {
    keys.iter().any(|key| matches!(key, GroupBy::Process | GroupBy::Thread))
}

/// Names of the accounts of a recording.
pub(super) struct RecordedNames {
    names: BTreeMap<AccountNumber, Vec<String>>,
    keys: usize,
}

impl RecordedNames {
    /// Reads the names of accounts by this number of keys.
    pub(super) fn read(recording: &Recording, keys: usize) -> Result<Self, history::Error> {
        let names = recording.account_names()?.into_iter().map(|account| (account.number, account.names)).collect();
        Ok(Self { names, keys })
    }

    /// Returns the names of an account, one for each key.
    pub(super) fn of(&self, number: AccountNumber) -> Vec<String> {
        let unknown = || vec![format!("[account {}]", number.0); self.keys];
        self.names.get(&number).filter(|names| names.len() == self.keys).cloned().unwrap_or_else(unknown)
    }
}
