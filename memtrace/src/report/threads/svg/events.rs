//! Vertical lines for events, with labels above the panels.

use std::io;
use std::time::Duration;

use super::frame::{Frame, LEFT, RIGHT};
use crate::model::format::duration;
use crate::model::{MonitorEventKind, ThreadTimeline};
use crate::report::escape;
use crate::report::format::shortened;
use crate::report::threads::event;

/// Maximum number of events.
const EVENTS: usize = 200;
/// Characters of a label.
const LABEL: usize = 40;
/// Maximum number of rows of labels, and their height.
const ROWS: usize = 4;
const ROW: f64 = 15.0;
/// Estimated width of a character.
const CHARACTER: f64 = 6.4;

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
    /// Row and left end of the label, if there is room.
    label: Option<(usize, f64)>,
}

impl EventLines {
    /// Returns the events of a timeline. If there are too many, ends of processes are left out first.
    pub(super) fn of(timeline: &ThreadTimeline) -> Self {
        let name =
            |pid| timeline.processes.iter().rev().find(|process| process.pid == pid).map(|process| &process.comm);
        let mut events: Vec<_> = timeline.events.iter().collect();
        events.sort_by_key(|event| (matches!(event.kind, MonitorEventKind::Exit(_)), event.at));
        let more = events.len().saturating_sub(EVENTS);
        events.truncate(EVENTS);
        events.sort_by_key(|event| event.at);
        let line = |event: &crate::model::MonitorEvent| {
            let text = event::text(&event.kind, name);
            EventLine { at: event.at, text, colour: colour(&event.kind), label: None }
        };
        let mut lines: Vec<_> = events.into_iter().map(line).collect();
        let rows = place_labels(&mut lines, &Frame::of(timeline, 0.0));
        Self { events: lines, more, rows }
    }

    /// Returns the height of the labels.
    pub(super) fn height(&self) -> f64 {
        self.rows as f64 * ROW
    }

    /// Writes the lines from the labels to the bottom of the panels.
    pub(super) fn write(&self, frame: &Frame, bottom: f64, out: &mut dyn io::Write) -> io::Result<()> {
        for EventLine { at, text, colour, label } in &self.events {
            let (x, row) = (frame.x(*at), label.map_or(self.rows, |(row, _)| row));
            let top = frame.head + row as f64 * ROW;
            let title = escape::xml(&format!("{}: {text}", duration(*at)));
            writeln!(
                out,
                r#"<g><title>{title}</title><path d="M{x:.1} {top:.1}V{:.1}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-dasharray="4 3"/>"#,
                bottom - 30.0
            )?;
            if let Some((_, left)) = label {
                let label = escape::xml(&shortened(text, LABEL));
                writeln!(out, r#"<text x="{left:.1}" y="{:.1}" style="fill:{colour}">{label}</text>"#, top + 10.0)?;
            }
            writeln!(out, "</g>")?;
        }
        if self.more > 0 {
            let (x, y) = (super::frame::LEGEND, frame.head + 10.0);
            writeln!(out, r#"<text class="note" x="{x}" y="{y:.1}">{} more events are not drawn</text>"#, self.more)?;
        }
        Ok(())
    }
}

/// Places labels in rows without overlaps. Returns the number of rows.
fn place_labels(lines: &mut [EventLine], frame: &Frame) -> usize {
    // Right ends of the labels of each row.
    let mut ends = [f64::MIN; ROWS];
    for line in lines.iter_mut() {
        let (x, width) = (frame.x(line.at), line.text.chars().count().min(LABEL) as f64 * CHARACTER);
        let left = if x + 4.0 + width > RIGHT { (x - 4.0 - width).max(LEFT) } else { x + 4.0 };
        // A label at the left of its line must not cross the line of another one.
        if let Some(row) = ends.iter().position(|end| *end <= left - 6.0) {
            ends[row] = (left + width).max(x);
            line.label = Some((row, left));
        }
    }
    ends.iter().filter(|end| **end > f64::MIN).count()
}

const fn colour(kind: &MonitorEventKind) -> &'static str {
    match kind {
        MonitorEventKind::OomKill(_) => "#c62828",
        MonitorEventKind::Exit(_) => "#607d8b",
        MonitorEventKind::Mark(_) => "#1565c0",
        MonitorEventKind::Trigger(_) => "#d84315",
    }
}
