//! Selection of moments in a recording.

use std::ops::Range;
use std::time::Duration;

use crate::history::{Boundary, MarkRow, Recording};
use crate::model::{Amount, Epoch, EventClass, Quantity, Tick, format};
use crate::session::config::Moment;
use crate::session::error::Error;
use crate::session::recorded_facts::RecordedFacts;
use crate::session::trend_parts::TrendParts;

/// A moment, or two moments, of which a report shows the totals or the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Totals at the end.
    End,
    /// Totals at a moment.
    At(Moment),
    /// Changes from one moment to another: by default, from the start and to the end.
    Window(Option<Moment>, Option<Moment>),
    /// Changes from one mark to another.
    Marks(String, String),
    /// Totals at the boundary with the most live bytes.
    Peak,
}

/// Selected boundaries. Totals are exact at boundaries, so a moment stands for the last boundary before it.
#[derive(Debug)]
pub(super) struct Selected {
    /// `None` for the totals since the start of the recording.
    from: Option<Boundary>,
    to: Boundary,
    /// Start of tracing. Times of the recording begin a little earlier.
    start: Duration,
    /// `to` is the end of the recording.
    is_end: bool,
    /// Duration and end of the trace, if it has ended and `to` is the end.
    ended: Option<(Duration, Tick)>,
    /// Epoch that starts at the first mark, if the moments are marks.
    first_epoch: Option<Epoch>,
    /// Event class with a peak at `to`, if the peak is selected.
    peak_of: Option<EventClass>,
    inexact_marks: Vec<String>,
    /// Parts for which changes of live memory are shown.
    parts: TrendParts,
}

impl Selected {
    /// Finds the boundaries of `span`. `amounts` returns the live and allocated amounts of an event class at all boundaries.
    pub(super) fn find(
        recording: &Recording,
        facts: &RecordedFacts,
        span: &Span,
        amounts: impl FnOnce(EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error>,
    ) -> Result<Self, Error> {
        let (start, end) = facts.span();
        let moments = Moments { recording, start: start.since_start() };
        let (mut first_epoch, mut peak_of) = (None, None);
        let (from, to, marks) = match span {
            Span::End => (None, recording.end(), Vec::new()),
            Span::At(at) => (None, moments.boundary(*at)?, Vec::new()),
            Span::Window(from, to) => {
                let from = from.map_or(Ok(Boundary::START), |from| moments.boundary(from))?;
                let to = to.map_or_else(|| Ok(recording.end()), |to| moments.boundary(to))?;
                (Some(from), to, Vec::new())
            }
            Span::Marks(from, to) => {
                let (from, to) = (moments.mark(from)?, moments.mark(to)?);
                first_epoch = Some(Epoch(from.mark.epoch));
                (Some(from.boundary), to.boundary, vec![from, to])
            }
            Span::Peak => {
                let class = moments.class_with_live_memory()?;
                peak_of = Some(class);
                (None, peak(amounts(class)?)?, Vec::new())
            }
        };
        if let Some(from) = from.filter(|from| *from >= to) {
            return Err(Error::NotRecorded {
                message: format!(
                    "no interval of the recording ends after {} and until {}",
                    moments.after_start(from.at()),
                    moments.after_start(to.at())
                ),
                remedy: format!(
                    "choose a longer window; an interval is {}",
                    format::duration(recording.header().interval)
                ),
            });
        }
        let inexact = marks.into_iter().filter(|mark| !mark.is_exact).map(|mark| mark.mark.text.clone());
        let is_end = to == recording.end();
        let start = moments.start;
        let ended = facts.run().zip(end).filter(|_| is_end);
        let end = ended.map(|(_, end)| end.since_start());
        Ok(Self {
            parts: TrendParts::between(recording, from.unwrap_or(Boundary::START), to, start, end),
            from,
            to,
            start,
            is_end,
            ended,
            first_epoch,
            peak_of,
            inexact_marks: inexact.collect(),
        })
    }

    /// Returns the first boundary; the start of the recording if the totals are shown.
    pub(super) fn from(&self) -> Boundary {
        self.from.unwrap_or(Boundary::START)
    }

    /// Returns the last boundary.
    pub(super) const fn to(&self) -> Boundary {
        self.to
    }

    /// Returns the time of a boundary since the start of tracing.
    pub(super) fn since_start(&self, boundary: Boundary) -> Duration {
        boundary.at().saturating_sub(self.start)
    }

    /// Returns true if the totals at the end of a complete recording are shown.
    pub(super) const fn is_end_of(&self, recording: &Recording) -> bool {
        recording.is_complete() && self.is_end && self.from.is_none()
    }

    /// Returns true if changes are shown, rather than totals.
    pub(super) const fn is_window(&self) -> bool {
        self.from.is_some()
    }

    /// Returns the times of the boundaries.
    pub(super) fn times(&self) -> Range<Duration> {
        self.from().at().max(self.start)..self.to.at().max(self.start)
    }

    /// Returns the times of the boundaries since the start of tracing.
    pub(super) fn span(&self) -> Range<Duration> {
        let Range { start, end } = self.times();
        self.after_start(start)..self.after_start(end)
    }

    /// Returns the start of tracing.
    pub(super) fn start(&self) -> Tick {
        Tick::at(self.start)
    }

    /// Returns the time of the trace that is shown.
    pub(super) fn window(&self) -> Range<Tick> {
        let Range { start, end } = self.times();
        Tick::at(start)..self.ended.map_or(Tick::at(end), |(_, end)| end)
    }

    /// Returns the duration of the time that is shown.
    pub(super) fn duration(&self) -> Duration {
        match self.ended.filter(|_| !self.is_window()) {
            Some((duration, _)) => duration,
            None => self.times().end.saturating_sub(self.times().start),
        }
    }

    /// Returns the time since the start of tracing.
    pub(super) fn after_start(&self, time: Duration) -> Duration {
        time.saturating_sub(self.start)
    }

    /// Returns the parts for which changes of live memory are shown.
    pub(super) const fn parts(&self) -> &TrendParts {
        &self.parts
    }

    /// Shows no changes over time.
    pub(super) fn forget_parts(&mut self) {
        self.parts = TrendParts::default();
    }

    /// Returns the epoch that starts at the first mark, if changes between marks are shown.
    pub(super) const fn first_epoch(&self) -> Option<Epoch> {
        self.first_epoch
    }

    /// Returns the event class of the peak, if a peak is shown.
    pub(super) const fn peak_of(&self) -> Option<EventClass> {
        self.peak_of
    }

    /// Returns the marks at which totals are inexact.
    pub(super) fn inexact_marks(&self) -> impl Iterator<Item = &str> {
        self.inexact_marks.iter().map(String::as_str)
    }
}

/// Returns true if a recording contains a moment.
pub(super) fn contains(recording: &Recording, facts: &RecordedFacts, moment: Moment) -> bool {
    Moments { recording, start: facts.span().0.since_start() }.boundary(moment).is_ok()
}

/// Moments of a recording.
struct Moments<'a> {
    recording: &'a Recording,
    /// Start of tracing.
    start: Duration,
}

impl<'a> Moments<'a> {
    /// Returns the last boundary at or before a moment.
    fn boundary(&self, moment: Moment) -> Result<Boundary, Error> {
        let end = self.recording.end().at();
        let time = match moment {
            Moment::Clock(time) => time.duration_since(self.recording.header().start).ok(),
            Moment::AfterStart(after) => self.start.checked_add(after),
            Moment::BeforeEnd(before) => end.checked_sub(before),
        };
        let time = time.filter(|time| (self.start..=end).contains(time)).ok_or_else(|| self.outside())?;
        Ok(self.recording.boundary_at(time))
    }

    fn outside(&self) -> Error {
        let end = self.recording.end().at();
        Error::NotRecorded {
            message: String::from("the recording does not contain this moment"),
            remedy: format!(
                "it ends {} after its start: give a time from +0s to +{}",
                self.after_start(end),
                format::duration_argument(end.saturating_sub(self.start))
            ),
        }
    }

    /// Returns the first event class that has live memory.
    fn class_with_live_memory(&self) -> Result<EventClass, Error> {
        let classes = &self.recording.header().classes;
        classes.iter().copied().find(|class| Quantity::LiveBytes.is_of(*class)).ok_or_else(|| Error::NotRecorded {
            message: String::from("the recording has no live memory, and so no peak"),
            remedy: String::from("use --at or --from and --to"),
        })
    }

    fn mark(&self, text: &str) -> Result<&'a MarkRow, Error> {
        let marks = self.recording.marks();
        marks.iter().find(|mark| mark.mark.text == text).ok_or_else(|| {
            let known: Vec<_> = marks.iter().map(|mark| format!("{:?}", mark.mark.text)).collect();
            Error::NotRecorded {
                message: format!("the recording has no mark {text:?}"),
                remedy: match known.as_slice() {
                    [] => String::from("it has no marks; use --from and --to"),
                    known => format!("its marks are {}", known.join(", ")),
                },
            }
        })
    }

    fn after_start(&self, time: Duration) -> String {
        format::duration(time.saturating_sub(self.start))
    }
}

/// Returns the first boundary with the most live bytes.
fn peak(amounts: Vec<(Boundary, Amount, Amount)>) -> Result<Boundary, Error> {
    let live = |amount: Amount| amount.bytes.0.cast_signed();
    // Of equal elements, max_by_key returns the last.
    let largest = amounts.into_iter().rev().max_by_key(|&(_, amount, _)| live(amount));
    let peak = largest.filter(|&(_, amount, _)| live(amount) > 0).map(|(boundary, ..)| boundary);
    peak.ok_or_else(|| Error::NotRecorded {
        message: String::from("nothing was live at the end of any interval"),
        remedy: String::from("use --metric alloc-bytes without --peak"),
    })
}
