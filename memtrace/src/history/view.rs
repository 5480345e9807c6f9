//! Views: profiles of a part of a history.

mod activity;
mod notes;
mod options;
mod paths;
mod processes;

use std::sync::Arc;
use std::time::Duration;

use self::notes::page_notes;
use self::paths::RecordedCalls;
use super::book::Book;
use super::facts::RecordedFacts;
use super::file::Error;
use super::moments::Moments;
use super::name_table::NameTable;
use super::named_stacks::NamedClasses;
use super::report_stacks::ReportStacks;
use crate::model::{Activity, EventClass, MemoryTimelineBuilder, Names, Profile, RunFacts};

pub(crate) use self::notes::notes_of;
pub(crate) use self::options::{ViewOptions, counts_growth};
pub(crate) use self::processes::has_epochs;

/// The profiles of a part of a history, one for each event class.
#[derive(Debug)]
pub(crate) struct Views<'a> {
    book: &'a dyn Book,
    facts: &'a RecordedFacts,
    moments: &'a Moments,
    options: ViewOptions,
    classes: NamedClasses,
    activity: Option<Arc<Activity>>,
    timeline: Option<MemoryTimelineBuilder>,
    notes: Vec<String>,
}

/// Reads the part of a history that `moments` select. `facts` are those at its end. Calls without names in the history get
/// those that `names` finds.
///
/// # Errors
///
/// The history cannot be read.
pub(crate) fn view<'a>(
    book: &'a dyn Book,
    facts: &'a RecordedFacts,
    moments: &'a Moments,
    names: &dyn Names,
    options: ViewOptions,
) -> Result<Views<'a>, Error> {
    let locations = book.locations()?;
    let activity = activity::read(book, moments, &locations, facts.has_slice_bytes())?;
    let calls = RecordedCalls::new(locations);
    let (processes, frames) = processes::read(book, moments, calls, options)?;
    let names = NameTable::new(frames, names);
    let classes = NamedClasses::new(ReportStacks::of_recording(processes, &moments.window()), &names);
    let timeline = options.has_timeline.then(|| book.memory_over_time(moments.to())).transpose()?;
    let notes = facts.notes().into_iter().chain(notes_of(book, moments)).collect();
    Ok(Views { book, facts, moments, options, classes, activity, timeline, notes })
}

impl Views<'_> {
    /// Returns the profile of an event class, and removes its stacks. It contains the `earlier` ones. `label` sets the labels
    /// of its stacks.
    pub(crate) fn take(
        &mut self,
        class: EventClass,
        earlier: Vec<(Duration, Profile)>,
        label: impl FnOnce(&mut Profile),
    ) -> Profile {
        let run = self.run_facts(class);
        self.classes.take(class).into_profile(run, earlier, label)
    }

    fn run_facts(&self, class: EventClass) -> RunFacts {
        let Self { book, facts, moments, options, .. } = self;
        let header = book.header();
        let page_sample = if class.counts_pages() { header.page_sample } else { 0 };
        let older = header.older.filter(|_| moments.is_at_end() && class.probes_allocators());
        let has_parts = processes::has_parts(class, *book, moments, options.counts_growth);
        let trace = moments.start().since_start()..moments.window().end.since_start();
        RunFacts {
            page_sample,
            duration: moments.duration(),
            notes: self.notes.iter().cloned().chain(page_notes(*book, moments, class)).collect(),
            window: moments.is_window().then(|| moments.span()),
            parts: if has_parts { moments.parts().times().to_vec() } else { Vec::new() },
            older,
            activity: self.activity.clone(),
            timeline: self.timeline.as_ref().map(|timeline| timeline.finish(class, page_sample, &trace)),
            ..if moments.is_at_end() { facts.of_class_at_end(class) } else { facts.of_class(class) }
        }
    }
}
