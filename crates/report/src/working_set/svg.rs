//! Picture of several readings: resident and touched memory. Cumulative readings are drawn over the time since
//! clearing, on a logarithmic and a linear axis. Other readings are drawn over their time.

mod scale;

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use memtrace_model::format::short;
use memtrace_model::{Bytes, ReferencedMemory, WorkingSets};

use self::scale::{Scale, TimeAxis};
use super::knee::knee;
use super::summary::summary;
use crate::axis::{Axis, Unit};
use crate::{escape, svg};

/// Width of the picture. All sizes and coordinates are in pixels.
const WIDTH: f64 = 1000.0;
/// Height of the titles.
const HEAD: f64 = 76.0;
/// Height of a plot.
const PANEL: f64 = 300.0;
/// Space below a plot.
const GAP: f64 = 64.0;
/// Left end of the plots.
const LEFT: f64 = 90.0;
/// Right end of the plots.
const RIGHT: f64 = 880.0;
/// Approximate number of ticks of the vertical axis.
const TICKS: usize = 5;

const STYLE: &str = "text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#37474f}\
.title{font-size:18px;font-weight:bold;fill:#263238}.panel{font-size:13px;font-weight:bold;fill:#263238}\
.note{fill:#78909c}.right{text-anchor:end}.middle{text-anchor:middle}\
.line{fill:none;stroke-width:2;stroke-linejoin:round}.rss{stroke:#90a4ae;stroke-dasharray:6 4}\
.ref{stroke:#1976d2}.least{stroke:#1976d2;stroke-width:1.2;stroke-dasharray:2 3}.point{fill:#1976d2}\
.knee{fill:none;stroke:#d84315;stroke-width:2}.kneetext{fill:#d84315}\
.grid{stroke:#eceff1;stroke-width:1}.border{fill:none;stroke:#cfd8dc}";

/// Memory of all processes in a reading, with its position on the time axis.
struct Point {
    time: Duration,
    memory: ReferencedMemory,
}

/// Writes the picture, or a picture that says that there is nothing to draw.
///
/// # Errors
///
/// Returns the errors of `out`.
pub(super) fn write(readings: &[WorkingSets], out: &mut dyn io::Write) -> io::Result<()> {
    let title = escape::visible(&title(readings));
    if readings.len() < 2 {
        return svg::write_empty(&title, "", "a curve needs several readings", out);
    }
    let is_cumulative = readings.iter().all(|sets| sets.is_cumulative);
    let time = |sets: &WorkingSets| if is_cumulative { sets.duration() } else { sets.at() };
    let points: Vec<_> = readings.iter().map(|sets| Point { time: time(sets), memory: sets.memory() }).collect();
    let axes: &[(TimeAxis, &str)] = if is_cumulative {
        &[
            (TimeAxis::Logarithmic, "Touched memory by the time since clearing, logarithmic"),
            (TimeAxis::Linear, "Touched memory by the time since clearing"),
        ]
    } else {
        &[(TimeAxis::Linear, "Touched memory of each reading by its time")]
    };
    let height = HEAD + axes.len() as f64 * (PANEL + GAP);
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8" standalone="no"?>"#)?;
    writeln!(
        out,
        r#"<svg version="1.1" width="{WIDTH:.0}" height="{height:.0}" viewBox="0 0 {WIDTH:.0} {height:.0}" xmlns="http://www.w3.org/2000/svg">"#
    )?;
    writeln!(out, "<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fafafa\"/>")?;
    writeln!(out, r#"<text class="title" x="20" y="30">{}</text>"#, escape::xml(&title))?;
    let text = format!("{} Method: {}.", summary(readings).unwrap_or_default(), readings[0].method.name());
    writeln!(out, r#"<text class="note" x="20" y="50">{}</text>"#, escape::xml(&text))?;
    for (index, (axis, head)) in axes.iter().enumerate() {
        let top = HEAD + 24.0 + index as f64 * (PANEL + GAP);
        let panel = Panel::of(&points, *axis, top);
        panel.write(head, is_cumulative, out)?;
    }
    writeln!(out, "</svg>")
}

struct Panel<'a> {
    points: &'a [Point],
    top: f64,
    horizontal: Scale,
    vertical: Axis,
}

impl<'a> Panel<'a> {
    fn of(points: &'a [Point], axis: TimeAxis, top: f64) -> Self {
        let times = points.iter().map(|point| point.time);
        let greatest = points.iter().map(|point| point.memory.resident.0.max(point.memory.referenced.0)).max();
        let vertical = Axis::of(Unit::Bytes, [0.0, greatest.unwrap_or(0) as f64], TICKS);
        Self { points, top, horizontal: Scale::of(axis, times, [LEFT, RIGHT]), vertical }
    }

    fn y(&self, value: f64) -> f64 {
        let [least, most] = self.vertical.range();
        self.top + PANEL - (value - least) / (most - least) * PANEL
    }

    fn place(&self, point: &Point, value: Bytes) -> (f64, f64) {
        (self.horizontal.x(point.time), self.y(value.0 as f64))
    }

    fn write(&self, head: &str, marks_knee: bool, out: &mut dyn io::Write) -> io::Result<()> {
        let bottom = self.top + PANEL;
        writeln!(out, r#"<text class="panel" x="{LEFT}" y="{:.1}">{head}</text>"#, self.top - 8.0)?;
        for (value, label) in self.vertical.ticks() {
            let y = self.y(value);
            writeln!(out, r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#)?;
            writeln!(out, r#"<text class="right" x="{:.1}" y="{:.1}">{label}</text>"#, LEFT - 8.0, y + 4.0)?;
        }
        for (x, label) in self.horizontal.ticks() {
            writeln!(out, r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{bottom:.1}"/>"#, self.top)?;
            writeln!(out, r#"<text class="middle" x="{x:.1}" y="{:.1}">{label}</text>"#, bottom + 18.0)?;
        }
        let width = RIGHT - LEFT;
        writeln!(out, r#"<rect class="border" x="{LEFT}" y="{:.1}" width="{width}" height="{PANEL}"/>"#, self.top)?;
        self.curve("rss", "RSS", |memory| memory.resident, out)?;
        if self.points.iter().any(|point| point.memory.least_referenced < point.memory.referenced) {
            self.curve("least", "at least", |memory| memory.least_referenced, out)?;
        }
        self.curve("ref", "touched", |memory| memory.referenced, out)?;
        for point in self.points {
            let (x, y) = self.place(point, point.memory.referenced);
            let text = format!("{} within {}", point.memory.referenced, short(point.time));
            writeln!(out, r#"<circle class="point" cx="{x:.1}" cy="{y:.1}" r="3"><title>{text}</title></circle>"#)?;
        }
        if marks_knee { self.mark_knee(out) } else { Ok(()) }
    }

    /// Draws a curve, with its name at its last point.
    fn curve(
        &self,
        class: &str,
        name: &str,
        value: impl Fn(&ReferencedMemory) -> Bytes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let places = self.points.iter().map(|point| self.place(point, value(&point.memory)));
        let mut path = String::new();
        let mut last = (LEFT, self.top);
        for (x, y) in places {
            // Writing to a string cannot fail.
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
            last = (x, y);
        }
        writeln!(out, r#"<path class="line {class}" d="{path}"/>"#)?;
        writeln!(out, r#"<text x="{:.1}" y="{:.1}">{name}</text>"#, last.0 + 8.0, last.1 + 4.0)
    }

    fn mark_knee(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let curve: Vec<_> = self.points.iter().map(|point| (point.time, point.memory.referenced)).collect();
        let Some(point) = knee(&curve).map(|index| &self.points[index]) else { return Ok(()) };
        let (x, y) = self.place(point, point.memory.referenced);
        writeln!(out, r#"<circle class="knee" cx="{x:.1}" cy="{y:.1}" r="7"/>"#)?;
        let text = format!("knee: {} within {}", point.memory.referenced, short(point.time));
        let y = if y - self.top > 40.0 { y - 14.0 } else { y + 24.0 };
        writeln!(out, r#"<text class="kneetext" x="{:.1}" y="{y:.1}">{text}</text>"#, x + 10.0)
    }
}

/// Returns the title: `working set of redis-server (4711)`, `working sets of 3 processes`.
fn title(readings: &[WorkingSets]) -> String {
    let first = readings.first().map(|sets| sets.processes.as_slice()).unwrap_or_default();
    match first {
        [process] => format!("working set of {} ({})", process.comm, process.pid),
        processes => format!("working sets of {} processes", processes.len()),
    }
}
