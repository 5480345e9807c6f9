//! SVG paths of curves.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use super::frame::Frame;
use crate::threads::timeline::ThreadTimeline;

/// Shape of a curve between its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each value is at the end of its span. Lines connect the values.
    Level,
    /// Like [`Self::Level`], but after a gap the curve starts at the last value before the gap, and the whole curve
    /// starts at 0.
    Sum,
    /// Each value is an average over its span. The curve has steps.
    Rate,
}

/// Horizontal and vertical scale of a panel.
pub(super) struct Scale<'a> {
    pub(super) frame: &'a Frame,
    pub(super) timeline: &'a ThreadTimeline,
    /// The y coordinates of the bottom and the top.
    pub(super) vertical: [f64; 2],
    /// Values at the bottom and the top.
    pub(super) range: [f64; 2],
}

impl Scale<'_> {
    /// Returns the y coordinate of a value.
    pub(super) fn y(&self, value: f64) -> f64 {
        let ([bottom, top], [least, most]) = (self.vertical, self.range);
        bottom + (value - least) / (most - least) * (top - bottom)
    }

    fn span(&self, point: usize) -> &Range<Duration> {
        &self.timeline.spans[point]
    }

    /// Returns the path of a line.
    pub(super) fn line(&self, shape: Shape, values: &[Option<f64>]) -> String {
        let mut path = String::new();
        let mut before = 0.0;
        for run in self.runs(values) {
            path.push('M');
            self.add_run(&mut path, shape, before, &run);
            before = run.last().map_or(before, |(_, value)| *value);
        }
        path
    }

    /// Returns the path of the area between 0 and the values.
    pub(super) fn area(&self, shape: Shape, values: &[Option<f64>]) -> String {
        let mut path = String::new();
        let zero = self.y(0.0);
        for run in self.runs(values) {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            let [left, right] = [self.span(*first).start, self.span(*last).end].map(|at| self.frame.x(at));
            // Writing to a string cannot fail.
            let _ = write!(path, "M{left:.1} {zero:.1}L");
            self.add_run(&mut path, shape, 0.0, &run);
            let _ = write!(path, "L{right:.1} {zero:.1}Z");
        }
        path
    }

    /// Adds the points of a run, which begins at the start of its first span. `before`: last value before the run.
    fn add_run(&self, path: &mut String, shape: Shape, before: f64, run: &[(usize, f64)]) {
        let Some(&(first, value)) = run.first() else { return };
        let mut before = self.y(if shape == Shape::Sum { before } else { value });
        // Writing to a string cannot fail.
        let _ = write!(path, "{:.1} {before:.1}", self.frame.x(self.span(first).start));
        for (place, &(point, value)) in run.iter().enumerate() {
            let (x, y) = (self.frame.x(self.span(point).end), self.y(value));
            let _ = match shape {
                Shape::Level | Shape::Sum => write!(path, "L{x:.1} {y:.1}"),
                Shape::Rate => {
                    if (y - before).abs() >= 0.05 {
                        let _ = write!(path, "V{y:.1}");
                    }
                    // Steps of the same height are joined.
                    let next = run.get(place + 1).map(|(_, next)| self.y(*next));
                    match next {
                        Some(next) if (next - y).abs() < 0.05 => Ok(()),
                        _ => write!(path, "H{x:.1}"),
                    }
                }
            };
            before = y;
        }
    }

    /// Returns the runs of consecutive points with values. Gaps and unknown values separate them.
    fn runs(&self, values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
        let mut runs: Vec<Vec<(usize, f64)>> = Vec::new();
        let mut is_new = true;
        for (point, value) in values.iter().enumerate() {
            is_new |= self.timeline.has_gap_before(point);
            let Some(value) = value else {
                is_new = true;
                continue;
            };
            match runs.last_mut() {
                Some(run) if !is_new => run.push((point, *value)),
                _ => runs.push(vec![(point, *value)]),
            }
            is_new = false;
        }
        runs
    }
}
