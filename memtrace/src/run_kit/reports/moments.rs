//! Selection of moments in a recording.

use std::time::Duration;

use memtrace_history::facts::RecordedFacts;
use memtrace_history::{Book, Boundary, MarkRow, Moments};
use memtrace_model::{Amount, Epoch, EventClass, Quantity, format};

use crate::run_kit::config::Moment;
use crate::run_kit::error::Error;

/// Moments that a report shows: the totals at one moment, or the changes between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// Totals at the end of the recording.
    End,
    /// Totals at a moment.
    At(Moment),
    /// Changes from one moment to another. `None` stands for the start or the end of the recording.
    Window(Option<Moment>, Option<Moment>),
    /// Changes from one mark to another.
    Marks(String, String),
    /// Totals at the boundary with the most live bytes.
    Peak,
}

/// Finds the boundaries of `span` in a history with these facts.
pub(crate) fn find(
    book: &dyn Book,
    facts: &RecordedFacts,
    span: &Span,
    unreadable: &dyn Fn(memtrace_history::Error) -> Error,
) -> Result<Moments, Error> {
    let known = Known { book, start: facts.span().0.since_start() };
    let moments = |from, to| Moments::new(book, facts, from, to);
    Ok(match span {
        Span::End => moments(None, book.end()),
        Span::At(at) => moments(None, known.boundary(*at)?).with_cut_time(known.is_before_start(*at)),
        Span::Window(from, to) => {
            let is_cut = from.iter().chain(to).any(|moment| known.is_before_start(*moment));
            if let (Some(from), Some(to)) = (*from, *to) {
                known.check_window(from, to)?;
            }
            let from = from.map_or(Ok(Boundary::START), |from| known.boundary(from))?;
            let to = to.map_or_else(|| Ok(book.end()), |to| known.boundary(to))?;
            known.check_order(from, to)?;
            moments(Some(from), to).with_cut_time(is_cut)
        }
        Span::Marks(from, to) => {
            let (from, to) = (known.mark(from)?, known.mark(to)?);
            check_marks(from, to)?;
            known.check_order(from.boundary, to.boundary)?;
            let inexact = [from, to].into_iter().filter(|mark| !mark.is_exact).map(|mark| mark.mark.text.clone());
            moments(Some(from.boundary), to.boundary).with_marks(Epoch(from.mark.epoch), inexact.collect())
        }
        Span::Peak => {
            let class = known.class_with_live_memory()?;
            let amounts = book.amounts_over_time(class).map_err(unreadable)?;
            moments(None, peak(amounts)?).with_peak(class)
        }
    })
}

/// Returns true if a recording contains a moment.
pub(crate) fn contains(book: &dyn Book, facts: &RecordedFacts, moment: Moment) -> bool {
    let known = Known { book, start: facts.span().0.since_start() };
    !known.is_before_start(moment) && known.boundary(moment).is_ok()
}

/// Lookup of moments in a history.
struct Known<'a> {
    book: &'a dyn Book,
    /// Time from the start of the history to the start of tracing.
    start: Duration,
}

impl<'a> Known<'a> {
    /// Returns the last boundary at or before a moment.
    fn boundary(&self, moment: Moment) -> Result<Boundary, Error> {
        let end = self.book.end().at();
        let time = self.time(moment).filter(|time| (self.start..=end).contains(time));
        Ok(self.book.boundary_at(time.ok_or_else(|| self.outside())?))
    }

    /// Returns true if a moment is given by its time before the end, and the recording is shorter.
    fn is_before_start(&self, moment: Moment) -> bool {
        let length = self.book.end().at().saturating_sub(self.start);
        matches!(moment, Moment::BeforeEnd(before) if before > length)
    }

    /// Returns the time of a moment since the start of the history; `None` if the moment is earlier than this start. If
    /// a moment is given by its time before the end, the result is never before the start of tracing: the last five
    /// minutes of a shorter recording are the whole recording.
    fn time(&self, moment: Moment) -> Option<Duration> {
        match moment {
            Moment::Clock(time) => time.duration_since(self.book.header().start).ok(),
            Moment::AfterStart(after) => self.start.checked_add(after),
            Moment::BeforeEnd(before) => Some(self.book.end().at().saturating_sub(before).max(self.start)),
        }
    }

    /// Fails if a window ends before its start.
    fn check_window(&self, from: Moment, to: Moment) -> Result<(), Error> {
        let (Some(from), Some(to)) = (self.time(from), self.time(to)) else { return Ok(()) };
        if from <= to {
            return Ok(());
        }
        let argument = |time: Duration| format::duration_argument(time.saturating_sub(self.start));
        Err(Error::NotRecorded {
            message: format!(
                "--from is after --to: {} and {} after the start of the recording",
                self.after_start(from),
                self.after_start(to)
            ),
            remedy: format!("exchange them: --from +{} --to +{}", argument(to), argument(from)),
        })
    }

    /// Fails if no interval lies between the two boundaries.
    fn check_order(&self, from: Boundary, to: Boundary) -> Result<(), Error> {
        if from < to {
            return Ok(());
        }
        let interval = format::duration(self.book.header().interval);
        Err(Error::NotRecorded {
            message: format!(
                "no interval of the recording ends after {} and until {}",
                self.after_start(from.at()),
                self.after_start(to.at())
            ),
            remedy: format!("choose a longer window; an interval is {interval}"),
        })
    }

    fn outside(&self) -> Error {
        let end = self.book.end().at();
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
        let classes = &self.book.header().classes;
        classes.iter().copied().find(|class| Quantity::LiveBytes.is_of(*class)).ok_or_else(|| Error::NotRecorded {
            message: String::from("the recording has no live memory, and so no peak"),
            remedy: String::from("use --at or --from and --to"),
        })
    }

    fn mark(&self, text: &str) -> Result<&'a MarkRow, Error> {
        let marks = self.book.marks();
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

/// Fails if the first mark of a window is after the second.
fn check_marks(from: &MarkRow, to: &MarkRow) -> Result<(), Error> {
    if from.boundary <= to.boundary {
        return Ok(());
    }
    Err(Error::NotRecorded {
        message: format!("the mark {:?} is after the mark {:?}", from.mark.text, to.mark.text),
        remedy: String::from("exchange them: the first mark is the start of the window"),
    })
}

/// Returns the first of the boundaries with the most live bytes.
fn peak(amounts: Vec<(Boundary, Amount, Amount)>) -> Result<Boundary, Error> {
    let live = |amount: Amount| amount.bytes.0.cast_signed();
    // If several elements are equal, `max_by_key` returns the last.
    let largest = amounts.into_iter().rev().max_by_key(|&(_, amount, _)| live(amount));
    let peak = largest.filter(|&(_, amount, _)| live(amount) > 0).map(|(boundary, ..)| boundary);
    peak.ok_or_else(|| Error::NotRecorded {
        message: String::from("nothing was live at the end of any interval"),
        remedy: String::from("use --metric alloc-bytes without --peak"),
    })
}
