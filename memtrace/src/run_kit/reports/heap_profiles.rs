//! Moments of heap profiles in a history.

use memtrace_history::{Book, Moments};

use crate::run_kit::config::Moment;

/// Maximum number of moments, apart from the end. All profiles are in memory at the same time.
pub(crate) const MAX_HEAP_PROFILES: usize = 32;

/// Returns the chosen moments, and the moments of the marks before the end of the report. If there are too many marks,
/// the first marks are left out.
pub(crate) fn moments(book: &dyn Book, moments: &Moments, chosen: &[Moment]) -> Vec<Moment> {
    let marks = book.marks().iter().filter(|mark| mark.boundary < moments.to());
    let marks: Vec<_> = marks.map(|mark| Moment::AfterStart(moments.since_start(mark.boundary))).collect();
    let free = MAX_HEAP_PROFILES.saturating_sub(chosen.len());
    let last_marks = &marks[marks.len().saturating_sub(free)..];
    chosen.iter().chain(last_marks).copied().collect()
}
