//! Picture of threads over time: memory by kind, then net bytes, allocations, processor time and lifetimes of the
//! largest threads.

mod curves;
mod events;
mod frame;
mod lanes;
mod legend;
mod panel;
mod path;
mod ranking;
mod readout;

use std::borrow::Cow;
use std::io;

use memtrace_model::format::{counted, duration};

use self::events::EventLines;
use self::frame::{Frame, WIDTH};
use self::ranking::Ranking;
use super::timeline::{TIMELINE_POINTS, ThreadTimeline};
use crate::format::shortened;
use crate::{escape, svg};

/// Maximum length of the title, in characters.
const TITLE: usize = 110;
/// Style sheet. It names fonts of the reader's system, because the picture loads nothing.
const STYLE: &str = "text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11px;fill:#37474f}\
.title{font-size:18px;font-weight:bold;fill:#263238}.panel{font-size:13px;font-weight:bold;fill:#263238;\
paint-order:stroke;stroke:#fafafa;stroke-width:4px}\
.note{fill:#78909c}.right{text-anchor:end}.middle{text-anchor:middle}\
.line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}.line:hover{stroke-width:3.5}\
.event{fill:none;stroke-width:1.2;stroke-dasharray:4 3}\
.grid{stroke:#eceff1;stroke-width:1}.zero{stroke:#90a4ae;stroke-width:1}.border{fill:none;stroke:#cfd8dc}\
.read{fill:#000;fill-opacity:0}.read:hover{fill-opacity:.06}";

/// Writes the picture, or a picture that says that there is nothing to draw.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(timeline: &ThreadTimeline, out: &mut dyn io::Write) -> io::Result<()> {
    let title = shortened(&escape::visible(&timeline.title), TITLE);
    if timeline.spans.is_empty() {
        return svg::write_empty(&title, "", "no interval", out);
    }
    let mut timeline = Cow::Borrowed(timeline);
    if timeline.spans.len() > TIMELINE_POINTS {
        timeline.to_mut().merge_points();
    }
    let events = EventLines::of(&timeline);
    let ranking = Ranking::of(&timeline);
    let frame = Frame::of(&timeline, events.height());
    let mut body = Vec::new();
    // Later elements cover earlier ones: titles of panels cover the event lines above the plots, and the event lines
    // in the plots cover the curves.
    events.write_labels(&frame, &mut body)?;
    let (bottom, mut plots) = panel::write_all(&timeline, &ranking, &frame, &mut body)?;
    let (height, lanes) = lanes::write(&timeline, &ranking, &frame, bottom, &mut body)?;
    plots.extend(lanes);
    events.write_lines(&frame, &plots, &mut body)?;
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8" standalone="no"?>"#)?;
    writeln!(
        out,
        r#"<svg version="1.1" width="{WIDTH}" height="{height:.0}" viewBox="0 0 {WIDTH} {height:.0}" xmlns="http://www.w3.org/2000/svg">"#
    )?;
    writeln!(out, "<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fafafa\"/>")?;
    writeln!(out, r#"<text class="title" x="20" y="30">{}</text>"#, escape::xml(&title))?;
    writeln!(out, r#"<text class="note" x="20" y="49">{}</text>"#, escape::xml(&subtitle(&timeline)))?;
    out.write_all(&body)?;
    writeln!(out, "</svg>")
}

/// Returns the subtitle: `2 processes · 412 threads · 3 min · 180 points`.
fn subtitle(timeline: &ThreadTimeline) -> String {
    let span = timeline.span();
    let threads = timeline.threads.len() as u64 + timeline.more_threads;
    let mut parts = vec![
        counted(timeline.processes.len() as u64, "process", "processes"),
        counted(threads, "thread", "threads"),
        duration(span.end.saturating_sub(span.start)),
        counted(timeline.spans.len() as u64, "point", "points"),
    ];
    let gaps = (0..timeline.spans.len()).filter(|point| timeline.has_gap_before(*point)).count();
    if gaps > 0 {
        parts.push(counted(gaps as u64, "gap without data", "gaps without data"));
    }
    parts.join(" · ")
}
