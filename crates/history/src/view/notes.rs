//! Notes on the data of a history that a report shows.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{EventClass, format};

use crate::book::Book;
use crate::facts::{GoProfileMoments, RecordedFacts};
use crate::file::Error;
use crate::moments::Moments;

/// Maximum number of gaps with a note of their own.
const MAX_GAPS: usize = 10;

const MARKS_OF_GO: &str =
    "Go's own profile is not read at a mark: its numbers there are those of the last reading before it";

/// Returns a note if resident pages are not known: the page tables are read only at the end of a run, and resident
/// pages by stack are not recorded if pages are sampled.
pub(super) fn page_notes(book: &dyn Book, moments: &Moments, class: EventClass) -> Vec<String> {
    let is_known = moments.is_at_end() && book.header().page_sample <= 1;
    let note = "resident pages are known at the end of a run without --sample only: here, all touched pages of running \
                processes count as resident";
    if class.counts_pages() && !is_known { vec![String::from(note)] } else { Vec::new() }
}

/// Returns the moments of Go's own profiles at the end of `moments`. `facts`: facts at the end of the history.
pub(super) fn go_profiles(
    book: &dyn Book,
    facts: &RecordedFacts,
    moments: &Moments,
) -> Result<GoProfileMoments, Error> {
    // The facts of a run that has just ended are not in its history yet.
    if moments.to() == book.end() {
        return Ok(facts.go_profiles());
    }
    Ok(RecordedFacts::new(book.facts(moments.to())?).go_profiles())
}

/// Returns notes about the age of Go's own profiles. `facts`: facts at the end of the history.
///
/// # Errors
///
/// The history cannot be read.
pub fn go_profile_notes(book: &dyn Book, facts: &RecordedFacts, moments: &Moments) -> Result<Vec<String>, Error> {
    Ok(go_profile_notes_of(&go_profiles(book, facts, moments)?, moments))
}

pub(super) fn go_profile_notes_of(profiles: &GoProfileMoments, moments: &Moments) -> Vec<String> {
    let note = profiles.note(moments.start(), moments.window().end);
    let of_marks = note.as_ref().filter(|_| moments.first_epoch().is_some()).map(|_| String::from(MARKS_OF_GO));
    note.into_iter().chain(of_marks).collect()
}

/// Returns notes about missing and inexact data of the recording.
pub fn notes_of(book: &dyn Book, moments: &Moments) -> Vec<String> {
    let mut notes = Vec::new();
    let after = |time: Duration| format::duration(moments.after_start(time));
    let end = book.end().at();
    if book.is_salvaged() {
        notes.push(format!("the recording is damaged: the intervals after {} are missing", after(end)));
    } else if !book.is_complete() {
        notes.push(String::from("the recording is not complete: memtrace still writes it, or was killed"));
    }
    if moments.has_cut_time() {
        notes.push(format!("the recording is {} long: earlier times stand for its start", after(end)));
    }
    if let Some(age) = book.header().older.filter(|_| !moments.is_at_end()) {
        let age = format::duration_argument(age);
        notes.push(format!(
            "live memory of any age is counted here: the blocks of --older {age} are known at the end of the run only"
        ));
    }
    let Range { start, end } = moments.times();
    let gaps: Vec<_> = book.gaps().iter().filter(|gap| gap.span.start < end && start < gap.span.end).collect();
    for gap in gaps.iter().take(MAX_GAPS) {
        let (from, to, reason) = (after(gap.span.start), after(gap.span.end), gap.reason.name());
        notes.push(format!("no interval was stored from {from} to {to} ({reason}): its changes count at its end"));
    }
    if let Some(more) = gaps.len().checked_sub(MAX_GAPS).filter(|more| *more > 0) {
        let gaps = format::counted(more as u64, "gap", "gaps");
        notes.push(format!("{gaps} more in the table gap of the recording"));
    }
    if let Some(class) = moments.peak_of() {
        let live = class.words().live;
        notes.push(format!(
            "this is the end of the interval with the most {live} bytes; within an interval, it can be more"
        ));
    }
    notes.extend(moments.inexact_marks().map(|mark| {
        format!("the numbers at the mark {mark} are those at the end of its interval, since the writer was too slow")
    }));
    notes
}
