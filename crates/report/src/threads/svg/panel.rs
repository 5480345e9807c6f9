//! Panels. Each panel has a plot with axes, and a legend.

use std::io;

use super::curves::{self, Curve, Number};
use super::frame::{Frame, LEFT, RIGHT};
use super::legend::{self, Legend};
use super::path::{Scale, Shape};
use super::ranking::Ranking;
use super::readout;
use crate::axis::{Axis, Unit, time_ticks};
use crate::threads::timeline::ThreadTimeline;

/// Height of the title of a panel, in pixels.
pub(super) const TITLE: f64 = 24.0;
/// Height of the labels of the time axis and of the space to the next panel, in pixels.
pub(super) const FOOT: f64 = 36.0;
/// Minimum height of a plot, in pixels.
const PLOT: f64 = 150.0;

/// A plot with its curves.
struct Panel {
    title: String,
    unit: Unit,
    shape: Shape,
    /// Curves that are drawn as stacked areas, from the bottom.
    stacked: Vec<Curve>,
    lines: Vec<Curve>,
    legend: Legend,
    height: f64,
}

/// Writes the panels below each other. Returns the bottom of the last panel, and the bottom and top of each plot.
pub(super) fn write_all(
    timeline: &ThreadTimeline,
    ranking: &Ranking<'_>,
    frame: &Frame,
    out: &mut dyn io::Write,
) -> io::Result<(f64, Vec<[f64; 2]>)> {
    let (mut top, mut plots) = (frame.top, Vec::new());
    for panel in [memory(timeline), net(timeline, ranking), allocation(timeline, ranking), processor(timeline, ranking)]
    {
        let bottom = panel.write(timeline, frame, top, out)?;
        plots.push([bottom - FOOT, top + TITLE]);
        top = bottom;
    }
    Ok((top, plots))
}

fn memory(timeline: &ThreadTimeline) -> Panel {
    let (stacked, total) = curves::memory(timeline);
    let lines = [Some(total), curves::swap(timeline)].into_iter().flatten().collect();
    let title = match timeline.processes.len() {
        0 | 1 => String::from("Resident memory by kind"),
        many => format!("Resident memory by kind, sum of {many} processes"),
    };
    Panel { title, unit: Unit::Bytes, shape: Shape::Level, stacked, lines, legend: Legend::Last, height: PLOT }
}

fn net(timeline: &ThreadTimeline, ranking: &Ranking<'_>) -> Panel {
    let number: Number = |point| point.net.map(|net| net as f64);
    let lines = curves::threads(timeline, ranking, number, true);
    let title = String::from("Net bytes of threads since the start (allocated − freed)");
    let stacked = Vec::new();
    Panel { title, unit: Unit::Bytes, shape: Shape::Sum, stacked, lines, legend: Legend::Last, height: 220.0 }
}

fn allocation(timeline: &ThreadTimeline, ranking: &Ranking<'_>) -> Panel {
    let stacked = curves::threads(timeline, ranking, |point| point.alloc_rate, false);
    let (title, unit) = (String::from("Allocated bytes per second"), Unit::BytesPerSecond);
    Panel { title, unit, shape: Shape::Rate, stacked, lines: Vec::new(), legend: Legend::Mean, height: PLOT }
}

fn processor(timeline: &ThreadTimeline, ranking: &Ranking<'_>) -> Panel {
    let stacked = curves::threads(timeline, ranking, |point| Some(point.processor), false);
    let (title, unit) = (String::from("Processor time (100 % is one processor)"), Unit::Processor);
    Panel { title, unit, shape: Shape::Rate, stacked, lines: Vec::new(), legend: Legend::Mean, height: PLOT }
}

impl Panel {
    fn write(self, timeline: &ThreadTimeline, frame: &Frame, top: f64, out: &mut dyn io::Write) -> io::Result<f64> {
        let sums = stack(&self.stacked);
        let height = self.height.max(legend::height(self.stacked.len() + self.lines.len()));
        let axis = Axis::of(self.unit, range(sums.iter().chain(self.lines.iter().map(|curve| &curve.values))), 5);
        let vertical = [top + TITLE + height, top + TITLE];
        let scale = Scale { frame, timeline, vertical, range: axis.range() };
        writeln!(out, r#"<g><text class="panel" x="{LEFT}" y="{:.1}">{}</text>"#, top + 15.0, self.title)?;
        write_background(timeline, frame, vertical, out)?;
        write_ticks(&axis, &scale, out)?;
        // Each sum is drawn as an area from 0, the largest first, so that the smaller ones cover it.
        for (curve, sum) in self.stacked.iter().zip(&sums).rev() {
            let path = scale.area(self.shape, sum);
            writeln!(out, r#"<path fill="{}" d="{path}"/>"#, curve.colour)?;
        }
        let all: Vec<&Curve> = self.lines.iter().chain(self.stacked.iter().rev()).collect();
        readout::write(&all, self.unit, &scale, out)?;
        // The lines are in order of importance. The most important one is drawn last, so that it is on top.
        for curve in self.lines.iter().rev() {
            let path = scale.line(self.shape, &curve.values);
            write!(out, r#"<path class="line" stroke="{}" d="{path}"><title>"#, curve.colour)?;
            writeln!(out, "{}</title></path>", legend::tooltip(curve, self.unit, timeline))?;
        }
        if all.iter().all(|curve| curve.values.iter().all(Option::is_none)) {
            let (x, y) = ((LEFT + RIGHT) / 2.0, top + TITLE + height / 2.0);
            writeln!(out, r#"<text class="note middle" x="{x:.1}" y="{y:.1}">not known</text>"#)?;
        }
        legend::write(&all, self.lines.len(), self.legend, self.unit, timeline, top + TITLE, out)?;
        writeln!(out, "</g>")?;
        Ok(top + TITLE + height + FOOT)
    }
}

/// Writes the background of a plot, its gaps and its time axis.
pub(super) fn write_background(
    timeline: &ThreadTimeline,
    frame: &Frame,
    [bottom, top]: [f64; 2],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let (width, height) = (RIGHT - LEFT, bottom - top);
    writeln!(out, r##"<rect x="{LEFT}" y="{top:.1}" width="{width}" height="{height:.1}" fill="#fff"/>"##)?;
    for point in (0..timeline.spans.len()).filter(|point| timeline.has_gap_before(*point)) {
        let [left, right] = [timeline.spans[point - 1].end, timeline.spans[point].start].map(|at| frame.x(at));
        let width = right - left;
        write!(out, r##"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="#eceff1">"##)?;
        writeln!(out, "<title>no data</title></rect>")?;
    }
    for (at, label) in time_ticks(frame.span()) {
        let (x, below) = (frame.x(at), bottom + 14.0);
        writeln!(out, r#"<path class="grid" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#)?;
        writeln!(out, r#"<text class="middle" x="{x:.1}" y="{below:.1}">{label}</text>"#)?;
    }
    writeln!(out, r#"<rect class="border" x="{LEFT}" y="{top:.1}" width="{width}" height="{height:.1}"/>"#)
}

fn write_ticks(axis: &Axis, scale: &Scale<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    for (value, label) in axis.ticks() {
        let y = scale.y(value);
        let class = if value == 0.0 { "zero" } else { "grid" };
        writeln!(out, r#"<path class="{class}" d="M{LEFT} {y:.1}H{RIGHT}"/>"#)?;
        writeln!(out, r#"<text class="right" x="{:.1}" y="{:.1}">{label}</text>"#, LEFT - 8.0, y + 4.0)?;
    }
    Ok(())
}

/// Returns for each curve the sum of its values and the values of the curves below. An unknown value counts as 0 if
/// another curve has a value at the same point.
fn stack(curves: &[Curve]) -> Vec<Vec<Option<f64>>> {
    let points = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
    let is_known: Vec<bool> =
        (0..points).map(|point| curves.iter().any(|curve| curve.values[point].is_some())).collect();
    let mut sums: Vec<Vec<Option<f64>>> = Vec::with_capacity(curves.len());
    for curve in curves {
        let below = sums.last();
        let sum = |(point, value): (usize, &Option<f64>)| {
            let below = below.and_then(|below| below[point]).unwrap_or(0.0);
            is_known[point].then(|| below + value.unwrap_or(0.0).max(0.0))
        };
        let next = curve.values.iter().enumerate().map(sum).collect();
        sums.push(next);
    }
    sums
}

fn range<'a>(curves: impl Iterator<Item = &'a Vec<Option<f64>>>) -> [f64; 2] {
    curves.flatten().flatten().fold([0.0; 2], |[least, most], &value| [least.min(value), most.max(value)])
}
