//! The reports at the end of a run: views of its history.

use std::path::PathBuf;

use memtrace_history::facts::RecordedFacts;
use memtrace_history::{Book, Fact, Moments};
use memtrace_model::{AccountKeys, EventClass, Names, PartKeys, Profile};

use super::config::Config;
use crate::run_kit::config::Moment;
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::observer::Observer;
use crate::run_kit::outputs::Outputs;
use crate::run_kit::reports::accounts_over_time::AccountsOverTime;
use crate::run_kit::reports::moments::contains;
use crate::run_kit::reports::{BookReports, EarlierProfiles, ReportOptions, fail, fill, unreadable};

pub(super) struct RunReport<'a> {
    run: &'a Config,
    /// File of the recording, or the name of the history in error messages.
    path: PathBuf,
    book: &'a dyn Book,
    facts: RecordedFacts,
    heap_profiles: Vec<Moment>,
    /// False if the intervals of the run were lost. The reports then cover the end of the run only.
    has_intervals: bool,
}

impl<'a> RunReport<'a> {
    /// Prepares the reports of a run with this configuration. `book`: history of the run. `facts`: facts at its end,
    /// except for the cost.
    pub(super) fn new(run: &'a Config, book: &'a dyn Book, facts: Vec<Fact>, observer: &mut dyn Observer) -> Self {
        let facts = RecordedFacts::new(facts);
        let heap_profiles = chosen(book, &facts, &run.heap_profiles, observer);
        let path = run.recording.as_ref().map_or_else(|| PathBuf::from("the history"), |file| file.path.clone());
        Self { run, path, book, facts, heap_profiles, has_intervals: true }
    }

    /// Restricts the reports to the end of the run.
    pub(super) fn without_intervals(self) -> Self {
        log::warn!("the reports have neither trends nor memory over time nor heap profiles of earlier moments");
        Self { has_intervals: false, ..self }
    }

    /// Passes the report of each event class to `each`. `names`: names of calls. `cost`: returns the cost of the run
    /// when the stacks of a class are complete. Returns false if a part of the history cannot be read; the totals at
    /// the end do not depend on that part.
    pub(super) fn for_each_class(
        &self,
        names: &dyn Names,
        cost: impl FnMut(EventClass) -> Vec<Fact>,
        each: impl FnMut(EventClass, Profile, memtrace_report::Options),
    ) -> Result<bool, Error> {
        let mut is_complete = true;
        let mut warn = |missing, error| {
            log::warn!("the reports have no {missing}: {error}");
            is_complete = false;
        };
        let has_timeline = self.run.timeline.is_some() && self.has_intervals;
        let (reports, without_timeline) = (self.reports(has_timeline), self.reports(false));
        let earlier = if self.run.shows_heap_profiles() && self.has_intervals {
            reports.earlier_profiles(names)
        } else {
            Ok(Default::default())
        };
        let earlier = earlier.unwrap_or_else(|error| {
            warn("heap profiles of earlier moments", error);
            EarlierProfiles::new()
        });
        let views = reports.views(names).or_else(|error| {
            warn("memory over time", error);
            without_timeline.views(names)
        });
        reports.for_each_class(views?, earlier, cost, each);
        Ok(is_complete)
    }

    /// Writes the accounts over time. Returns the failures.
    pub(super) fn write_accounts(
        &self,
        keys: &AccountKeys,
        outputs: Outputs,
        observer: &mut dyn Observer,
    ) -> Vec<NotWritten> {
        let reports = self.reports(false);
        match AccountsOverTime::read(reports.book, &reports.moments, keys) {
            Ok(accounts) => fill(outputs, &|_, _, out| accounts.write(out), observer),
            Err(source) => fail(outputs, &unreadable(&self.path, source).to_string(), observer),
        }
    }

    fn reports(&self, has_timeline: bool) -> BookReports<'_> {
        let Self { run, path, book, facts, .. } = self;
        let shows_moments = run.outputs.iter().any(|output| output.format.shows_moments());
        let options = ReportOptions {
            grouping: run.grouping.clone(),
            keeps_parts: run.grouping.parts() != PartKeys::NONE,
            has_timeline,
            metric: run.metric,
            heap_profiles: shows_moments.then(|| self.heap_profiles.clone()),
            top: run.top,
            keep_ended: run.keep_ended,
            all_stacks: run.all_stacks,
        };
        let moments = Moments::new(*book, facts, None, book.end());
        BookReports { book: *book, path: path.clone(), facts: facts.clone(), moments, options }
    }
}

/// Returns the moments that the trace contains, and notes that the others are missing.
fn chosen(book: &dyn Book, facts: &RecordedFacts, moments: &[Moment], observer: &mut dyn Observer) -> Vec<Moment> {
    let (chosen, others): (Vec<_>, Vec<_>) = moments.iter().copied().partition(|moment| contains(book, facts, *moment));
    if !others.is_empty() {
        observer.note(&format!(
            "{} of {} heap profiles are missing: the trace does not contain their times",
            others.len(),
            moments.len()
        ));
    }
    chosen
}
