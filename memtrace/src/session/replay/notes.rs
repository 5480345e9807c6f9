//! Notes on the part of a recording that a report shows.

use std::ops::Range;
use std::time::Duration;

use super::moments::Selected;
use crate::history::Recording;
use crate::model::{EventClass, format};

/// The most gaps that have a note of their own.
const MAX_GAPS: usize = 10;

/// Returns a note if resident pages are not known: the page tables are read at the end of a run.
pub(super) fn page_notes(recording: &Recording, selected: &Selected, class: EventClass) -> Vec<String> {
    let is_known = selected.is_end_of(recording) && recording.header().page_sample <= 1;
    let note = "resident pages are known at the end of a run without --sample only: here, all touched pages of running \
                processes count as resident";
    if class.counts_pages() && !is_known { vec![String::from(note)] } else { Vec::new() }
}

/// Returns notes about parts of the recording that are missing or inexact.
pub(super) fn notes_of(recording: &Recording, selected: &Selected) -> Vec<String> {
    let mut notes = Vec::new();
    let after = |time: Duration| format::duration(selected.after_start(time));
    let end = recording.end().at();
    if recording.is_salvaged() {
        notes.push(format!("the recording is damaged: the intervals after {} are missing", after(end)));
    } else if !recording.is_complete() {
        notes.push(String::from("the recording is not complete: memtrace still writes it, or was killed"));
    }
    if let Some(age) = recording.header().older.filter(|_| !selected.is_end_of(recording)) {
        let age = format::duration_argument(age);
        notes.push(format!(
            "live memory of any age is counted here: the blocks of --older {age} are known at the end of the run only"
        ));
    }
    let Range { start, end } = selected.times();
    let gaps: Vec<_> = recording.gaps().iter().filter(|gap| gap.span.start < end && start < gap.span.end).collect();
    for gap in gaps.iter().take(MAX_GAPS) {
        let (from, to, reason) = (after(gap.span.start), after(gap.span.end), gap.reason.name());
        notes.push(format!("no interval was stored from {from} to {to} ({reason}): its changes count at its end"));
    }
    if let Some(more) = gaps.len().checked_sub(MAX_GAPS).filter(|more| *more > 0) {
        let gaps = format::counted(more as u64, "gap", "gaps");
        notes.push(format!("{gaps} more in the table gap of the recording"));
    }
    if let Some(class) = selected.peak_of() {
        let live = class.words().live;
        notes.push(format!(
            "this is the end of the interval with the most {live} bytes; within an interval, it can be more"
        ));
    }
    notes.extend(selected.inexact_marks().map(|mark| {
        format!("the numbers at the mark {mark} are those at the end of its interval, since the writer was too slow")
    }));
    notes
}
