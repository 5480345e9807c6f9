//! Panel with the lifetimes of threads: one lane for each thread.

use std::io;

use memtrace_model::format::{clock, grouped};

use super::curves;
use super::frame::{Frame, LEFT, LEGEND, LEGEND_END};
use super::panel::{FOOT, TITLE, write_background};
use super::ranking::Ranking;
use crate::escape;
use crate::threads::timeline::{ThreadSeries, ThreadTimeline};

/// Height of a lane, in pixels.
const LANE: f64 = 17.0;

/// Writes the lanes of the threads of the ranking. Returns the bottom of the panel, and the bottom and top of the
/// plot; `None` without threads.
pub(super) fn write(
    timeline: &ThreadTimeline,
    ranking: &Ranking<'_>,
    frame: &Frame,
    top: f64,
    out: &mut dyn io::Write,
) -> io::Result<(f64, Option<[f64; 2]>)> {
    if ranking.shown.is_empty() {
        return Ok((top, None));
    }
    let bottom = top + TITLE + ranking.shown.len() as f64 * LANE + 6.0;
    let more =
        if ranking.others > 0 { format!(" (without {} others)", grouped(ranking.others)) } else { String::new() };
    writeln!(out, r#"<g><text class="panel" x="{LEFT}" y="{:.1}">Lifetimes of threads{more}</text>"#, top + 15.0)?;
    write_background(timeline, frame, [bottom, top + TITLE], out)?;
    for (lane, (series, colour)) in ranking.shown.iter().enumerate() {
        let y = top + TITLE + 3.0 + lane as f64 * LANE;
        write_lane(timeline, frame, series, colour, y, out)?;
    }
    writeln!(out, "</g>")?;
    Ok((bottom + FOOT, Some([bottom, top + TITLE])))
}

fn write_lane(
    timeline: &ThreadTimeline,
    frame: &Frame,
    series: &ThreadSeries,
    colour: &str,
    y: f64,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let all = timeline.span();
    let first = series.points.iter().next().map_or(all.start, |(point, _)| timeline.spans[point].start);
    let (start, end) = (series.started.unwrap_or(first), series.ended.unwrap_or(all.end));
    let [left, right] = [start, end].map(|at| frame.x(at));
    let name = escape::xml(&curves::name(series, timeline));
    let life = match (series.started, series.ended) {
        (None, None) => String::from("all the time"),
        (Some(start), None) => format!("since {}", clock(start)),
        (None, Some(end)) => format!("until {}", clock(end)),
        (Some(start), Some(end)) => format!("{} – {}", clock(start), clock(end)),
    };
    let (text, width) = (y + 12.0, (right - left).max(2.0));
    writeln!(
        out,
        r#"<g><title>{name}: {life}</title><rect x="{left:.1}" y="{:.1}" width="{width:.1}" height="9" rx="2" fill="{colour}"/><rect x="{LEGEND}" y="{:.1}" width="10" height="10" rx="2" fill="{colour}"/><text x="{}" y="{text:.1}">{name}</text><text class="right" x="{LEGEND_END}" y="{text:.1}">{life}</text></g>"#,
        y + 4.0,
        y + 3.0,
        LEGEND + 16.0,
    )
}
