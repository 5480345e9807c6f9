//! The part of a history that a view shows.

use std::ops::Range;
use std::time::Duration;

use memtrace_model::{Epoch, EventClass, Tick};

use super::book::Book;
use super::boundaries::Boundary;
use super::facts::RecordedFacts;
use super::trend_parts::TrendParts;

/// Moments of a view. With one moment, the view shows its totals; with two moments, the changes between them.
///
/// Totals are exact at boundaries, so a moment stands for the last boundary at or before it.
#[derive(Debug)]
pub struct Moments {
    /// `None` for the totals since the start of the history.
    from: Option<Boundary>,
    to: Boundary,
    /// Start of tracing as a time of the history. The history begins a little earlier.
    start: Duration,
    /// True if the view shows the totals at the end of the run.
    is_at_end: bool,
    /// Duration and end of the trace, if the trace has ended and `to` is its end.
    ended: Option<(Duration, Tick)>,
    /// Consecutive time ranges in the shown time. Reports show the changes of live memory in each of them.
    parts: TrendParts,
    /// Epoch that starts at the first mark, if the moments are marks.
    first_epoch: Option<Epoch>,
    /// Texts of the marks with inexact totals.
    inexact_marks: Vec<String>,
    /// Event class that has its peak at `to`, if the view shows a peak.
    peak_of: Option<EventClass>,
    /// True if the start replaces an earlier moment that is before the history.
    has_cut_time: bool,
}

impl Moments {
    /// Returns the moment `to`, or the window from `from` to `to`. `facts`: facts of `book`.
    pub fn new(book: &dyn Book, facts: &RecordedFacts, from: Option<Boundary>, to: Boundary) -> Self {
        let (start, end) = facts.span();
        let start = start.since_start();
        let is_end = to == book.end();
        let ended = facts.run().zip(end).filter(|_| is_end);
        let end = ended.map(|(_, end)| end.since_start());
        Self {
            from,
            to,
            start,
            is_at_end: book.is_complete() && is_end && from.is_none(),
            ended,
            parts: TrendParts::between(book.intervals(), from.unwrap_or(Boundary::START), to, start, end),
            first_epoch: None,
            inexact_marks: Vec::new(),
            peak_of: None,
            has_cut_time: false,
        }
    }

    /// Declares that the moments are marks. `first_epoch`: epoch that starts at the first mark. `inexact`: texts of
    /// the marks with inexact totals.
    pub fn with_marks(self, first_epoch: Epoch, inexact: Vec<String>) -> Self {
        Self { first_epoch: Some(first_epoch), inexact_marks: inexact, ..self }
    }

    /// Declares that the moment is the peak of an event class.
    pub fn with_peak(self, class: EventClass) -> Self {
        Self { peak_of: Some(class), ..self }
    }

    /// Declares whether the start replaces an earlier moment that is before the history.
    pub fn with_cut_time(self, has_cut_time: bool) -> Self {
        Self { has_cut_time, ..self }
    }

    /// Removes the parts, so that the view shows no changes over time.
    pub fn without_parts(self) -> Self {
        Self { parts: TrendParts::default(), ..self }
    }

    /// Returns the first boundary; the start of the history if the totals are shown.
    pub fn from(&self) -> Boundary {
        self.from.unwrap_or(Boundary::START)
    }

    /// Returns the last boundary.
    pub const fn to(&self) -> Boundary {
        self.to
    }

    /// Returns the time of a boundary since the start of tracing.
    pub fn since_start(&self, boundary: Boundary) -> Duration {
        boundary.at().saturating_sub(self.start)
    }

    /// Returns true if the totals at the end of the run are shown.
    pub const fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Returns true if changes are shown, rather than totals.
    pub const fn is_window(&self) -> bool {
        self.from.is_some()
    }

    /// Returns the time between the boundaries, from the start of tracing at the earliest.
    pub fn times(&self) -> Range<Duration> {
        self.from().at().max(self.start)..self.to.at().max(self.start)
    }

    /// Returns the time between the boundaries, relative to the start of tracing.
    pub fn span(&self) -> Range<Duration> {
        let Range { start, end } = self.times();
        self.after_start(start)..self.after_start(end)
    }

    /// Returns the start of tracing.
    pub fn start(&self) -> Tick {
        Tick::at(self.start)
    }

    /// Returns the shown part of the trace, in ticks.
    pub fn window(&self) -> Range<Tick> {
        let Range { start, end } = self.times();
        Tick::at(start)..self.ended.map_or(Tick::at(end), |(_, end)| end)
    }

    /// Returns the duration of the shown part of the trace.
    pub fn duration(&self) -> Duration {
        match self.ended.filter(|_| !self.is_window()) {
            Some((duration, _)) => duration,
            None => self.times().end.saturating_sub(self.times().start),
        }
    }

    /// Converts a time of the history to the time since the start of tracing.
    pub fn after_start(&self, time: Duration) -> Duration {
        time.saturating_sub(self.start)
    }

    /// Returns the consecutive time ranges in the shown time. Reports show the changes of live memory in each of
    /// them.
    pub const fn parts(&self) -> &TrendParts {
        &self.parts
    }

    /// Returns the epoch that starts at the first mark, if changes between marks are shown.
    pub const fn first_epoch(&self) -> Option<Epoch> {
        self.first_epoch
    }

    /// Returns the event class of the peak, if a peak is shown.
    pub const fn peak_of(&self) -> Option<EventClass> {
        self.peak_of
    }

    /// Returns true if the start replaces an earlier moment that is before the history.
    pub(crate) const fn has_cut_time(&self) -> bool {
        self.has_cut_time
    }

    /// Returns the marks with inexact totals.
    pub fn inexact_marks(&self) -> impl Iterator<Item = &str> {
        self.inexact_marks.iter().map(String::as_str)
    }
}
