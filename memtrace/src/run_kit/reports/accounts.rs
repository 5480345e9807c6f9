//! Tables of accounts of a history.

use std::collections::BTreeMap;
use std::ops::Range;

use memtrace_history::accounts;
use memtrace_history::facts::{RecordedFacts, main_thread_note};
use memtrace_history::{Book, Boundary, Moments, go_profile_notes};
use memtrace_model::{AccountKeys, AccountNumber, AccountRow, AccountTable, EventClass, format};

/// Returns the accounts by `keys` at the selected moments, not sorted. `notes`: notes about the selection.
pub(crate) fn table(
    book: &dyn Book,
    facts: &RecordedFacts,
    moments: &Moments,
    keys: AccountKeys,
    mut notes: Vec<String>,
) -> Result<AccountTable, memtrace_history::Error> {
    let to = moments.to();
    let mut accounts = book.accounts(moments.from(), to)?;
    let total = accounts.remove(&AccountNumber::TOTAL).unwrap_or_default();
    let names = RecordedNames::read(book, keys.len())?;
    let named = accounts.into_iter().filter(|(_, totals)| totals.has_amounts());
    let named = named.map(|(number, totals)| (names.of(number), totals));
    let most = total.marks.unwrap_or_default().high.at_most;
    let rows = accounts::add_up(named, keys.are_by_process(), most).map(|(names, totals)| AccountRow { names, totals });
    let samplers = facts.of_class(EventClass::Heap).samplers;
    notes.extend(memtrace_report::account_note(&samplers));
    notes.extend(main_thread_note(&samplers, &keys));
    notes.extend(go_profile_notes(book, facts, moments)?);
    if moments.is_at_end() {
        notes.extend(facts.notes());
    }
    if moments.is_window() {
        let Range { start, end } = moments.span();
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
        elapsed: moments.after_start(moments.times().end),
        losses: book.losses(Boundary::START, to)?,
        tag_functions: if moments.is_at_end() { facts.tag_functions() } else { Vec::new() },
        samplers,
        notes,
    })
}

pub(crate) struct RecordedNames {
    names: BTreeMap<AccountNumber, Vec<String>>,
    keys: usize,
}

impl RecordedNames {
    /// Reads the names of accounts. `keys`: number of names of an account.
    pub(crate) fn read(book: &dyn Book, keys: usize) -> Result<Self, memtrace_history::Error> {
        let names = book.account_names()?.into_iter().map(|account| (account.number, account.names)).collect();
        Ok(Self { names, keys })
    }

    /// Returns the names of an account, one for each key.
    pub(crate) fn of(&self, number: AccountNumber) -> Vec<String> {
        let unknown = || vec![format!("[account {}]", number.0); self.keys];
        self.names.get(&number).filter(|names| names.len() == self.keys).cloned().unwrap_or_else(unknown)
    }
}
