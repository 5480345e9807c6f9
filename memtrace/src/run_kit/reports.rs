//! Reports of a history: its views, written to outputs. The reports at the end of a run equal the reports of its
//! recording.

pub(crate) mod accounts;
pub(crate) mod accounts_over_time;
pub(crate) mod heap_profiles;
pub(crate) mod moments;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_history::facts::{RecordedFacts, main_thread_note};
use memtrace_history::{Book, Fact, Moments, ViewOptions, Views, counts_growth, has_epochs};
use memtrace_model::{EventClass, Metric, Names, Profile, Quantity, printable};
use memtrace_report::DEFAULT_ROWS;

use self::moments::Span;
use super::config::Moment;
use super::error::{Error, NotWritten};
use super::grouping::Grouping;
use super::observer::Observer;
use super::outputs::{self, Content, Outputs};

/// Profiles of earlier moments by event class, in order of time.
pub(crate) type EarlierProfiles = BTreeMap<EventClass, Vec<(Duration, Profile)>>;

/// A history, and the settings of its reports.
pub(crate) struct BookReports<'a> {
    pub(crate) book: &'a dyn Book,
    /// Path of the history's file, for error messages.
    pub(crate) path: PathBuf,
    pub(crate) facts: RecordedFacts,
    pub(crate) moments: Moments,
    pub(crate) options: ReportOptions,
}

/// Settings of the reports of a history.
#[derive(Clone)]
pub(crate) struct ReportOptions {
    pub(crate) grouping: Grouping,
    /// True if processes are divided into parts by the grouping key.
    pub(crate) keeps_parts: bool,
    /// True if memory over time is shown.
    pub(crate) has_timeline: bool,
    /// Metric to draw; `None` selects the metric that the profile suggests.
    pub(crate) metric: Option<Metric>,
    /// Moments of heap profiles, in addition to the marks; `None` if no output shows several heap profiles.
    pub(crate) heap_profiles: Option<Vec<Moment>>,
    /// Number of rows in lists of text reports; `None` if the user has not given it.
    pub(crate) top: Option<usize>,
    /// Number of ended processes with rows of their own.
    pub(crate) keep_ended: usize,
    /// True if every stack and process is written.
    pub(crate) all_stacks: bool,
}

impl BookReports<'_> {
    /// Returns the profiles of earlier moments, by event class and in order of time. The result is empty if no output
    /// shows them, or if the report shows the changes between two moments.
    pub(crate) fn earlier_profiles(&self, names: &dyn Names) -> Result<EarlierProfiles, Error> {
        let Self { book, path, facts, moments, options } = self;
        let mut all = EarlierProfiles::new();
        let Some(chosen) = options.heap_profiles.as_ref().filter(|_| !moments.is_window()) else { return Ok(all) };
        for moment in heap_profiles::moments(*book, moments, chosen) {
            let earlier = moments::find(*book, facts, &Span::At(moment), &|source| unreadable(path, source))?;
            if earlier.to() < moments.to() {
                let (path, facts, moments) = (path.clone(), facts.clone(), earlier.without_parts());
                let options =
                    ReportOptions { has_timeline: false, metric: None, heap_profiles: None, ..options.clone() };
                let earlier = Self { book: *book, path, facts, moments, options };
                earlier.for_each_class(earlier.views(names)?, BTreeMap::new(), no_facts, |class, profile, _| {
                    all.entry(class).or_default().push((profile.shown_time().end, profile));
                });
            }
        }
        for profiles in all.values_mut() {
            profiles.sort_by_key(|(at, _)| *at);
            profiles.dedup_by_key(|(at, _)| *at);
        }
        Ok(all)
    }

    /// Reads the views that the reports show. `names`: source of names for frames without a
    /// recorded name.
    pub(crate) fn views(&self, names: &dyn Names) -> Result<Views<'_>, Error> {
        let ReportOptions { keeps_parts, keep_ended, metric, has_timeline, .. } = self.options;
        let options = ViewOptions { keeps_parts, keep_ended, counts_growth: counts_growth(metric), has_timeline };
        let views = memtrace_history::view(self.book, &self.facts, &self.moments, names, options);
        views.map_err(|source| unreadable(&self.path, source))
    }

    /// Passes the report of each event class to `each`. `earlier`: profiles to include in the reports. `late`: function that
    /// returns the facts that are measured when the stacks of a class are complete.
    pub(crate) fn for_each_class(
        &self,
        mut views: Views<'_>,
        mut earlier: EarlierProfiles,
        mut late: impl FnMut(EventClass) -> Vec<Fact>,
        mut each: impl FnMut(EventClass, Profile, memtrace_report::Options),
    ) {
        let ReportOptions { grouping, metric, top, all_stacks, .. } = &self.options;
        let mut facts = self.facts.clone();
        for &class in &self.book.header().classes {
            let earlier = earlier.remove(&class).unwrap_or_default();
            let stacks = views.take(class);
            facts.add(late(class));
            let mut profile = views.profile(class, stacks, &facts, earlier, |profile| grouping.labels(profile));
            profile.run.notes.extend(main_thread_note(&profile.run.samplers, &[grouping.by]));
            let options = memtrace_report::Options {
                metric: metric_of(&profile, *metric),
                by: grouping.by,
                top: top.unwrap_or(DEFAULT_ROWS),
                all_stacks: *all_stacks,
                subject: facts.subject().to_owned(),
            };
            each(class, profile, options);
        }
    }
}

/// Returns no facts: a recording has all of them.
pub(crate) const fn no_facts(_: EventClass) -> Vec<Fact> {
    Vec::new()
}

/// Returns the error for a history that cannot be read.
pub(crate) fn unreadable(path: &Path, source: memtrace_history::Error) -> Error {
    Error::Recording { path: path.to_owned(), source }
}

/// Writes the outputs, and returns the failures.
pub(crate) fn fill(outputs: Outputs, content: &Content<'_>, observer: &mut dyn Observer) -> Vec<NotWritten> {
    // A report can be made again, but the recording may no longer exist then, so use rescue files.
    let (written, failures) = outputs.fill(content, &outputs::rescue_directories());
    for path in written {
        observer.note(&format!("wrote {}", printable(&path)));
    }
    failures
}

/// Writes no output, and returns a failure with this reason for each output.
pub(crate) fn fail(outputs: Outputs, reason: &str, observer: &mut dyn Observer) -> Vec<NotWritten> {
    fill(outputs, &|_, _, _| Err(io::Error::other(reason)), observer)
}

/// Returns the metric of a profile. In a window, net growth replaces live memory.
fn metric_of(profile: &Profile, metric: Option<Metric>) -> Metric {
    match metric {
        Some(Metric::Growth) if has_epochs(profile.run.class) => Metric::Growth,
        Some(Metric::Growth | Metric::NetGrowth | Metric::LiveBytes | Metric::LiveCount)
            if profile.run.window.is_some() && Quantity::LiveBytes.is_of(profile.run.class) =>
        {
            Metric::NetGrowth
        }
        metric => profile.metric(metric),
    }
}
