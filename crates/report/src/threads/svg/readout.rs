//! Tooltips of a plot with the values of all curves at a moment.

use std::io;

use memtrace_model::format::duration;

use super::curves::Curve;
use super::path::Scale;
use crate::axis::Unit;
use crate::escape;

/// Maximum number of moments with a tooltip.
const MOMENTS: usize = 120;

/// Writes an invisible column for each moment, or for several successive moments if there are too many. The title of
/// the column, which viewers show as a tooltip, has the values at the last of its moments, except for zeros.
pub(super) fn write(curves: &[&Curve], unit: Unit, scale: &Scale<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let spans = &scale.timeline.spans;
    let step = spans.len().div_ceil(MOMENTS).max(1);
    let [bottom, top] = scale.vertical;
    for points in (0..spans.len()).step_by(step).map(|first| first..(first + step).min(spans.len())) {
        let last = points.end - 1;
        let values = curves.iter().filter_map(|curve| {
            let value = curve.values[last].filter(|value| *value != 0.0)?;
            Some(escape::xml(&format!("\n{}: {}", curve.name, unit.text(value))))
        });
        let values: String = values.collect();
        let [left, right] = [spans[points.start].start, spans[last].end].map(|at| scale.frame.x(at));
        writeln!(
            out,
            r#"<rect class="read" x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"><title>{}{values}</title></rect>"#,
            right - left,
            bottom - top,
            duration(spans[last].end),
        )?;
    }
    Ok(())
}
