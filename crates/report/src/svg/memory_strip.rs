//! Curves of memory over time, in a strip below a flame graph.

use std::time::Duration;

use memtrace_model::format::duration;
use memtrace_model::{Bytes, MemoryCounter, MemoryTimeline};

use super::strip;

/// Height of the strip in pixels: a line of text, the curves, and margins.
const HEIGHT: u32 = 96;
const CURVES: u32 = 60;
/// Width of the curves in the coordinates of their SVG element, which is stretched to the width of the picture.
const WIDTH: f64 = 1000.0;

/// Appends the strip to a flame graph of inferno. Returns the picture without a change if there are fewer than two different
/// moments.
pub(super) fn append(picture: String, timeline: &MemoryTimeline) -> String {
    let curves = [("live", "#c2410c", live(timeline)), ("RSS", "#1d4ed8", rss(timeline))];
    let most = curves.iter().flat_map(|(.., values)| values.iter().flatten()).copied().max().unwrap_or_default();
    let (Some(first), Some(last)) = (timeline.moments.first(), timeline.moments.last()) else { return picture };
    if first == last {
        return picture;
    }
    let lines: String = curves.iter().map(|(_, colour, values)| polyline(colour, values, timeline, most)).collect();
    let names = curves.iter().filter(|(.., values)| values.iter().any(Option::is_some));
    let legend: String =
        names.map(|(name, colour, _)| format!("<tspan fill=\"{colour}\" dx=\"12\">━ {name}</tspan>")).collect();
    let (from, to, most) = (duration(*first), duration(*last), Bytes(most));
    strip::append(picture, HEIGHT, |height| {
        let (baseline, top) = (height + 14, height + 22);
        format!(
            "<g id=\"memory\"><rect x=\"0\" y=\"{height}\" width=\"100%\" height=\"{HEIGHT}\" fill=\"#f8f8f8\"/>\
             <text x=\"10\" y=\"{baseline}\">Memory from {from} to {to}, at most {most}:{legend}</text>\
             <svg x=\"10\" y=\"{top}\" width=\"98.3%\" height=\"{CURVES}\" viewBox=\"0 0 {WIDTH} {CURVES}\" \
             preserveAspectRatio=\"none\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{lines}</svg></g>"
        )
    })
}

/// Returns the live bytes at each moment; `None` if they are unknown.
fn live(timeline: &MemoryTimeline) -> Vec<Option<u64>> {
    let live = timeline.total.get(&MemoryCounter::Live);
    (0..timeline.moments.len()).map(|moment| live?.at(moment)).collect()
}

/// Returns the sum of the RSS of processes at each moment; `None` if no RSS is known, or if the timeline leaves out
/// processes.
fn rss(timeline: &MemoryTimeline) -> Vec<Option<u64>> {
    let of_process = |moment: usize| {
        let counters = timeline
            .processes
            .iter()
            .flat_map(|process| MemoryCounter::RSS.iter().map(|kind| process.counters.get(kind)));
        let known: Vec<u64> = counters.filter_map(|steps| steps?.at(moment)).collect();
        (!known.is_empty() && timeline.left_out == 0)
            .then(|| known.iter().fold(0, |sum, value| u64::saturating_add(sum, *value)))
    };
    (0..timeline.moments.len()).map(of_process).collect()
}

fn polyline(colour: &str, values: &[Option<u64>], timeline: &MemoryTimeline, most: u64) -> String {
    let first = timeline.moments.first().copied().unwrap_or_default();
    let span = timeline.moments.last().copied().unwrap_or_default().saturating_sub(first).max(Duration::from_nanos(1));
    let points: Vec<_> = values
        .iter()
        .zip(&timeline.moments)
        .filter_map(|(value, moment)| {
            let x = WIDTH * moment.saturating_sub(first).as_secs_f64() / span.as_secs_f64();
            let y = f64::from(CURVES) * (1.0 - (*value)? as f64 / most.max(1) as f64);
            Some(format!("{x:.1},{y:.1}"))
        })
        .collect();
    match points.is_empty() {
        true => String::new(),
        false => format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" vector-effect=\"non-scaling-stroke\"/>",
            points.join(" ")
        ),
    }
}
