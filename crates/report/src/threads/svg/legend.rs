//! Legends, at the right of the plots.

use std::io;

use memtrace_model::format::duration;

use super::curves::Curve;
use super::frame::{LEGEND, LEGEND_END};
use crate::axis::Unit;
use crate::escape;
use crate::threads::timeline::ThreadTimeline;

/// Height of a row, in pixels.
pub(super) const ROW: f64 = 16.0;
/// Distance of the first row from the top, in pixels.
const FIRST: f64 = 24.0;

/// Value that a legend shows for each curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Legend {
    /// The last value.
    Last,
    /// The average over the time with known values.
    Mean,
}

/// Returns the height of a legend with this number of rows.
pub(super) fn height(rows: usize) -> f64 {
    FIRST + rows as f64 * ROW
}

/// Writes the legend: the name of each curve, and its value. The first `lines` curves are drawn as lines, the others
/// as areas.
pub(super) fn write(
    curves: &[&Curve],
    lines: usize,
    legend: Legend,
    unit: Unit,
    timeline: &ThreadTimeline,
    top: f64,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    if curves.is_empty() {
        return Ok(());
    }
    let head = match legend {
        Legend::Last => "at the end",
        Legend::Mean => "average",
    };
    writeln!(out, r#"<text class="note right" x="{LEGEND_END}" y="{:.1}">{head}</text>"#, top + 9.0)?;
    for (row, curve) in curves.iter().enumerate() {
        let y = top + FIRST + row as f64 * ROW;
        let value = match legend {
            Legend::Last => curve.last(),
            Legend::Mean => mean(curve, timeline),
        };
        let value = value.map_or_else(|| String::from("-"), |value| unit.text(value));
        let height = if row < lines { 4.0 } else { 10.0 };
        writeln!(
            out,
            r#"<g><title>{}</title><rect x="{LEGEND}" y="{:.1}" width="10" height="{height}" rx="2" fill="{}"/><text x="{}" y="{y:.1}">{}</text><text class="right" x="{LEGEND_END}" y="{y:.1}">{value}</text></g>"#,
            tooltip(curve, unit, timeline),
            y - 4.0 - height / 2.0,
            curve.colour,
            LEGEND + 16.0,
            escape::xml(&curve.name),
        )?;
    }
    Ok(())
}

/// Returns a text for XML with the name of a curve, its last value and its peak.
pub(super) fn tooltip(curve: &Curve, unit: Unit, timeline: &ThreadTimeline) -> String {
    let last = curve.last().map_or_else(|| String::from("unknown"), |value| format!("{} at its end", unit.text(value)));
    let peak = curve.peak().map_or_else(String::new, |(point, value)| {
        format!(", peak {} at {}", unit.text(value), duration(timeline.spans[point].end))
    });
    escape::xml(&format!("{}: {last}{peak}", curve.name))
}

/// Returns the average over the time with known values; `None` if there are none.
fn mean(curve: &Curve, timeline: &ThreadTimeline) -> Option<f64> {
    let weighted = curve.values.iter().zip(&timeline.spans).filter_map(|(value, span)| {
        let length = span.end.saturating_sub(span.start).as_secs_f64();
        Some(((*value)? * length, length))
    });
    let (sum, time) = weighted.fold((0.0, 0.0), |(sum, time), (value, length)| (sum + value, time + length));
    (time > 0.0).then(|| sum / time)
}
