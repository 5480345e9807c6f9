//! Outputs of a run that show several moments. They are written from its history when that is complete.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::accounts_over_time::AccountsOverTime;
use super::moments::contains;
use super::{Config, Opened, View, fill, unreadable};
use crate::history::Book;
use crate::model::{AccountColumn, AccountKeys, EventClass};
use crate::session::config::{self, Moment, Output};
use crate::session::error::{Error, NotWritten};
use crate::session::observer::Observer;
use crate::session::outputs::Outputs;

/// Open outputs that are written from the history of a run.
#[derive(Default)]
pub(crate) struct RecordedOutputs {
    /// Outputs of stacks.
    pub(in crate::session) stacks: BTreeMap<EventClass, Outputs>,
    /// Outputs of accounts over time.
    pub(in crate::session) accounts: Option<Outputs>,
}

impl RecordedOutputs {
    /// Returns true if there are none.
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.stacks.is_empty() && self.accounts.is_none()
    }

    /// Writes the outputs of a history that cannot be read. Returns all of them.
    pub(in crate::session) fn fail(self, error: &Error, observer: &mut dyn Observer) -> Vec<NotWritten> {
        let all = self.stacks.into_values().chain(self.accounts);
        all.flat_map(|outputs| fail(outputs, error, observer)).collect()
    }

    /// Writes the outputs from the complete history of the run with this configuration. `path` is its file, if it has one.
    /// Returns those that failed.
    pub(in crate::session) fn write(
        self,
        book: &dyn Book,
        path: &Path,
        run: &config::Config,
        observer: &mut dyn Observer,
    ) -> Vec<NotWritten> {
        let Self { mut stacks, accounts } = self;
        let mut failures = Vec::new();
        if let (Some(outputs), Some(report)) = (accounts, &run.accounts) {
            let written = write_accounts(book, path, &report.keys, outputs, observer);
            failures.extend(written.unwrap_or_else(|(outputs, error)| fail(outputs, &error, observer)));
        }
        if !stacks.is_empty() {
            match write_stacks(book, path, run, &mut stacks, observer) {
                Ok(failed) => failures.extend(failed),
                Err(error) => {
                    failures.extend(stacks.into_values().flat_map(|outputs| fail(outputs, &error, observer)));
                }
            }
        }
        failures
    }
}

/// Returns the failures of outputs that cannot be written for this reason.
fn fail(outputs: Outputs, error: &Error, observer: &mut dyn Observer) -> Vec<NotWritten> {
    fill(outputs, &|_, _, _| Err(io::Error::other(error.to_string())), observer)
}

/// Writes accounts over time. Returns the outputs that failed; all outputs, if the recording cannot be read.
fn write_accounts(
    book: &dyn Book,
    path: &Path,
    keys: &AccountKeys,
    outputs: Outputs,
    observer: &mut dyn Observer,
) -> Result<Vec<NotWritten>, (Outputs, Error)> {
    let config = Config::whole(path, View::Accounts(AccountColumn::default()));
    let opened = match Opened::new(&config, book) {
        Ok(opened) => opened,
        Err(error) => return Err((outputs, error)),
    };
    match AccountsOverTime::read(opened.book, &opened.moments, keys) {
        Ok(accounts) => Ok(fill(outputs, &|_, _, out| accounts.write(out), observer)),
        Err(source) => Err((outputs, unreadable(&config, source))),
    }
}

/// Writes the stacks of each event class, with the heap profiles of the run, and removes the outputs from `outputs`. Returns
/// those that failed.
fn write_stacks(
    book: &dyn Book,
    path: &Path,
    run: &config::Config,
    outputs: &mut BTreeMap<EventClass, Outputs>,
    observer: &mut dyn Observer,
) -> Result<Vec<NotWritten>, Error> {
    let shows_moments = |output: &&Output| output.format.shows_moments();
    let config = Config {
        outputs: run.outputs.iter().filter(shows_moments).cloned().collect(),
        top: run.top,
        keep_ended: run.keep_ended,
        all_stacks: run.all_stacks,
        ..Config::whole(path, View::Stacks)
    };
    let opened = Opened::new(&config, book)?;
    let heap_profiles = chosen(&opened, &run.heap_profiles, observer);
    let config = Config { heap_profiles, ..config.clone() };
    Ok(Opened { config: &config, ..opened }.write(outputs, observer)?.0)
}

/// Returns the moments of the trace, and notes those that are not in it.
fn chosen(opened: &Opened<'_>, moments: &[Moment], observer: &mut dyn Observer) -> Vec<Moment> {
    let (chosen, others): (Vec<_>, Vec<_>) =
        moments.iter().copied().partition(|moment| contains(opened.book, &opened.facts, *moment));
    if !others.is_empty() {
        observer.note(&format!(
            "{} of {} heap profiles are missing: the trace does not contain their times",
            others.len(),
            moments.len()
        ));
    }
    chosen
}
