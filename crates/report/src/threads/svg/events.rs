//! Vertical lines for events, with labels above the panels.

use std::io;
use std::time::Duration;

use memtrace_model::format::duration;
use memtrace_model::{ThreadsEvent, ThreadsEventKind};

use super::frame::{Frame, LEFT, LEGEND, LEGEND_END};
use super::panel::TITLE;
use crate::escape;
use crate::format::shortened;
use crate::threads::event;
use crate::threads::timeline::ThreadTimeline;

/// Maximum number of drawn events.
const EVENTS: usize = 200;
/// Maximum length of a label, in characters.
const LABEL: usize = 60;
/// Maximum number of rows of labels. A row is `ROW` pixels high.
const ROWS: usize = 4;
const ROW: f64 = 15.0;
/// Estimated width of a character, in pixels.
const CHARACTER: f64 = 6.6;
/// Space between a line and its label, in pixels.
const SPACE: f64 = 4.0;

/// Events that are drawn.
pub(super) struct EventLines {
    events: Vec<EventLine>,
    /// Number of events that are not drawn.
    more: usize,
    rows: usize,
}

struct EventLine {
    at: Duration,
    text: String,
    colour: &'static str,
    /// Row of the label, and side of the line; `None` if there is no room for a label.
    label: Option<(usize, Side)>,
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl EventLines {
    /// Returns the events of a timeline. If there are too many, exits of processes are left out first.
    pub(super) fn of(timeline: &ThreadTimeline) -> Self {
        let name =
            |pid| timeline.processes.iter().rev().find(|process| process.pid == pid).map(|process| &process.comm);
        let mut events: Vec<_> = timeline.events.iter().collect();
        events.sort_by_key(|event| (matches!(event.kind, ThreadsEventKind::Exit(_)), event.at));
        let more = events.len().saturating_sub(EVENTS);
        events.truncate(EVENTS);
        events.sort_by_key(|event| event.at);
        let line = |event: &ThreadsEvent| {
            let text = event::text(&event.kind, name);
            EventLine { at: event.at, text, colour: colour(&event.kind), label: None }
        };
        let mut lines: Vec<_> = events.into_iter().map(line).collect();
        let rows = place_labels(&mut lines, &Frame::of(timeline, 0.0));
        Self { events: lines, more, rows }
    }

    /// Returns the height of all rows of labels.
    pub(super) fn height(&self) -> f64 {
        self.rows as f64 * ROW
    }

    /// Writes the labels, and the parts of the lines above the first plot.
    pub(super) fn write_labels(&self, frame: &Frame, out: &mut dyn io::Write) -> io::Result<()> {
        for EventLine { at, text, colour, label } in &self.events {
            let Some((row, side)) = label else { continue };
            let (x, top) = (frame.x(*at), frame.head + *row as f64 * ROW);
            let (class, left) = match side {
                Side::Left => ("right", x - SPACE),
                Side::Right => ("left", x + SPACE),
            };
            let (title, label) = (escape::xml(text), escape::xml(&shortened(text, LABEL)));
            let bottom = frame.top + TITLE;
            writeln!(out, r#"<path class="event" stroke="{colour}" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#)?;
            writeln!(
                out,
                r#"<text class="{class}" x="{left:.1}" y="{:.1}" style="fill:{colour}"><title>{title}</title>{label}</text>"#,
                top + 10.0,
            )?;
        }
        if self.more > 0 {
            let y = frame.head + 10.0;
            writeln!(
                out,
                r#"<text class="note" x="{LEGEND}" y="{y:.1}">{} more events are not drawn</text>"#,
                self.more
            )?;
        }
        Ok(())
    }

    /// Writes the lines in the plots. `plots`: bottom and top of each plot.
    pub(super) fn write_lines(&self, frame: &Frame, plots: &[[f64; 2]], out: &mut dyn io::Write) -> io::Result<()> {
        for EventLine { at, text, colour, .. } in &self.events {
            let x = frame.x(*at);
            let path: String = plots.iter().map(|[bottom, top]| format!("M{x:.1} {top:.1}V{bottom:.1}")).collect();
            let title = escape::xml(&format!("{}: {text}", duration(*at)));
            writeln!(out, r#"<path class="event" stroke="{colour}" d="{path}"><title>{title}</title></path>"#)?;
        }
        Ok(())
    }
}

/// Assigns labels to rows so that they do not overlap. Returns the number of rows.
fn place_labels(lines: &mut [EventLine], frame: &Frame) -> usize {
    // Right end of the last label in each row.
    let mut ends = [f64::MIN; ROWS];
    for line in lines.iter_mut() {
        let (x, width) = (frame.x(line.at), line.text.chars().count().min(LABEL) as f64 * CHARACTER);
        let fits_right = x + SPACE + width <= LEGEND_END;
        let (left, side) =
            if fits_right { (x + SPACE, Side::Right) } else { ((x - SPACE - width).max(LEFT), Side::Left) };
        if let Some(row) = ends.iter().position(|end| *end <= left.min(x) - SPACE) {
            ends[row] = (left + width).max(x);
            line.label = Some((row, side));
        }
    }
    ends.iter().filter(|end| **end > f64::MIN).count()
}

const fn colour(kind: &ThreadsEventKind) -> &'static str {
    match kind {
        ThreadsEventKind::OomKill(_) => "#c62828",
        ThreadsEventKind::Exit(_) => "#607d8b",
        ThreadsEventKind::Mark(_) => "#1565c0",
        ThreadsEventKind::Trigger(_) => "#d84315",
    }
}
