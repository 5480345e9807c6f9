//! Views: profiles at a moment of a history, or between two moments.

mod activity;
mod notes;
mod options;
mod paths;
mod processes;

use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{Activity, EventClass, Names, Profile, RunFacts, StackLabels};

use self::notes::{go_profile_notes_of, page_notes};
use self::paths::RecordedCalls;
use super::book::Book;
use super::exact_totals::ExactTotals;
use super::facts::{GoProfileMoments, RecordedFacts};
use super::file::Error;
use super::memory_timeline::MemoryTimelineBuilder;
use super::moments::Moments;
use super::name_table::NameTable;
use super::named_stacks::{NamedClasses, NamedStacks, Stacks};
use super::report_stacks::ReportStacks;

pub use self::notes::{go_profile_notes, notes_of};
pub use self::options::{ViewOptions, counts_growth};
pub use self::processes::has_epochs;

/// The profiles of a part of a history, one for each event class.
#[derive(Debug)]
pub struct Views<'a> {
    book: &'a dyn Book,
    moments: &'a Moments,
    options: ViewOptions,
    classes: NamedClasses<'a>,
    activity: Option<Arc<Activity>>,
    timeline: Option<MemoryTimelineBuilder>,
    go_profiles: GoProfileMoments,
}

/// Reads the part of a history that `moments` select. `facts`: facts at the end of the history. `names`: source for
/// the names of calls that have none in the history. At the end of a run, the view uses the history's [`ExactTotals`],
/// if there is one.
///
/// # Errors
///
/// The history cannot be read.
pub fn view<'a>(
    book: &'a dyn Book,
    facts: &RecordedFacts,
    moments: &'a Moments,
    names: &dyn Names,
    options: ViewOptions,
) -> Result<Views<'a>, Error> {
    let (classes, activity) = match known_end(book, moments) {
        Some(end) => (NamedClasses::new(end, names), end.activity.clone()),
        None => {
            let locations = book.locations()?;
            let activity = activity::read(book, moments, &locations, facts.has_slice_bytes())?;
            let (processes, frames) = processes::read(book, moments, RecordedCalls::new(locations), options)?;
            let stacks = Box::new(ReportStacks::of_recording(processes, &moments.window()));
            (NamedClasses::of(Stacks::OfHistory(stacks), &NameTable::new(frames, names)), activity)
        }
    };
    let timeline = options.has_timeline.then(|| book.memory_over_time(moments.to())).transpose()?;
    let go_profiles = notes::go_profiles(book, facts, moments)?;
    Ok(Views { book, moments, options, classes, activity, timeline, go_profiles })
}

/// Returns the exact totals at the end of the run, if the history has them and `moments` are the end of the run.
fn known_end<'a>(book: &'a dyn Book, moments: &Moments) -> Option<&'a ExactTotals> {
    book.exact_totals().filter(|_| moments.is_at_end())
}

impl Views<'_> {
    /// Returns the stacks of an event class. This function must be called at most once for each class.
    pub fn take(&mut self, class: EventClass) -> NamedStacks {
        self.classes.take(class)
    }

    /// Returns the profile of an event class. `stacks`: result of [`Self::take`]. `facts`: facts at the end of the
    /// history. `earlier`: profiles at earlier moments, which the profile contains. `labels` returns the labels of
    /// the stacks.
    pub fn profile(
        &self,
        class: EventClass,
        stacks: NamedStacks,
        facts: &RecordedFacts,
        earlier: Vec<(Duration, Profile)>,
        labels: impl FnOnce(&Profile) -> Option<StackLabels>,
    ) -> Profile {
        let run = self.run_facts(class, facts);
        let stacks = stacks.without_older(&run.parts, &self.go_profiles.older_since(self.moments.start()));
        stacks.into_profile(run, earlier, labels)
    }

    fn run_facts(&self, class: EventClass, facts: &RecordedFacts) -> RunFacts {
        let Self { book, moments, options, .. } = self;
        let header = book.header();
        let page_sample = if class.counts_pages() { header.page_sample } else { 0 };
        let older = header.older.filter(|_| moments.is_at_end() && class.probes_allocators());
        let has_parts = processes::has_parts(class, *book, moments, options.counts_growth);
        let trace = moments.start().since_start()..moments.window().end.since_start();
        RunFacts {
            page_sample,
            duration: moments.duration(),
            notes: [facts.notes(), self.go_profile_notes(class), self.notes(class)].concat(),
            window: moments.is_window().then(|| moments.span()),
            parts: match known_end(*book, moments) {
                _ if !has_parts => Vec::new(),
                // Merges for later intervals can have removed the boundaries of these parts from the history, so
                // the exact totals contain the parts.
                Some(end) => end.parts.clone(),
                None => moments.parts().times().to_vec(),
            },
            older,
            activity: self.activity.clone(),
            timeline: self.timeline.as_ref().map(|timeline| timeline.finish(class, page_sample, &trace)),
            ..if moments.is_at_end() { facts.of_class_at_end(class) } else { facts.of_class(class) }
        }
    }

    fn go_profile_notes(&self, class: EventClass) -> Vec<String> {
        if class.probes_allocators() { go_profile_notes_of(&self.go_profiles, self.moments) } else { Vec::new() }
    }

    /// Returns notes about missing or inexact data. The exact totals at the end of a run need no notes.
    fn notes(&self, class: EventClass) -> Vec<String> {
        match known_end(self.book, self.moments) {
            Some(_) => Vec::new(),
            None => [notes_of(self.book, self.moments), page_notes(self.book, self.moments, class)].concat(),
        }
    }
}
