//! Intervals of estimates in the titles of the frames, and their sources in a strip below the flame graph.

use std::ops::Range;

use super::strip;
use crate::escape;
use crate::estimate::Samples;
use crate::metrics::MetricView;

/// Height of the strip in pixels.
const HEIGHT: u32 = 24;

/// A drawn stack.
pub(super) struct DrawnStack {
    /// Position in the flame graph: a range of values for inferno, counted from the left edge.
    pub(super) place: Range<u64>,
    /// Value of the metric.
    pub(super) value: u64,
    /// Samples of the value; no samples if the value is exact.
    pub(super) samples: Samples,
}

/// Adds the interval of the value to the title of each frame of a flame graph of inferno. `stacks`: all stacks, from the left
/// to the right.
///
/// A title has the form `main (1,234 bytes, 56.78%)`. The script of the flame graph removes the last parenthesis from the
/// name, so the interval is within it, without parentheses.
pub(super) fn add(picture: &str, stacks: &[DrawnStack], view: MetricView<'_>) -> String {
    const END: &str = ")</title><rect ";
    let mut parts = picture.split(END);
    let mut added = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let interval = place(part).and_then(|place| interval(&place, stacks, view));
        if let Some(interval) = interval {
            added.push_str("; ");
            added.push_str(&interval);
        }
        added.push_str(END);
        added.push_str(part);
    }
    added
}

/// Returns the position of a frame. `rectangle`: text that begins with the attributes of its rectangle.
fn place(rectangle: &str) -> Option<Range<u64>> {
    let attributes = rectangle.split("/>").next()?;
    let number = |name: &str| attributes.split_once(name)?.1.split('"').next()?.parse::<u64>().ok();
    let start = number("fg:x=\"")?;
    Some(start..start.saturating_add(number("fg:w=\"")?))
}

/// Returns the interval of a frame: `± 1.20 MiB` or `3.10 to 7.80 MiB`; `None` if its value is exact.
fn interval(place: &Range<u64>, stacks: &[DrawnStack], view: MetricView<'_>) -> Option<String> {
    let first = stacks.partition_point(|stack| stack.place.start < place.start);
    let of_frame = stacks[first..].iter().take_while(|stack| stack.place.start < place.end);
    let (value, samples) = of_frame.fold((0_u64, Samples::default()), |(value, mut samples), stack| {
        samples += stack.samples;
        (value.saturating_add(stack.value), samples)
    });
    let phrase = samples.uncertainty()?.phrase(view.measure(), value);
    (!phrase.is_empty()).then_some(phrase)
}

/// Appends a strip with a legend to a flame graph of inferno.
pub(super) fn append_legend(picture: String, legend: &str) -> String {
    strip::append(picture, HEIGHT, |top| {
        let (baseline, legend) = (top + 14, escape::xml(legend));
        format!(
            "<g id=\"estimates\"><rect x=\"0\" y=\"{top}\" width=\"100%\" height=\"{HEIGHT}\" fill=\"#f8f8f8\"/>\
             <text x=\"10\" y=\"{baseline}\">{legend}</text></g>"
        )
    })
}

#[cfg(test)]
mod tests;
