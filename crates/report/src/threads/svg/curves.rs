//! Computes the values of the curves of each panel.

use memtrace_model::ProcessValue;
use memtrace_model::format::grouped;

use super::ranking::Ranking;
use crate::escape;
use crate::format::shortened;
use crate::threads::timeline::{ProcessPoint, ThreadSeries, ThreadTimeline, UsagePoint};

const OTHERS: &str = "#9e9e9e";
/// Kinds of resident memory with their names and colours, from the bottom of the plot.
const KINDS: [(ProcessValue, &str, &str); 3] = [
    (ProcessValue::RssAnon, "anonymous", "#5b9bd5"),
    (ProcessValue::RssFile, "file", "#a9d18e"),
    (ProcessValue::RssShmem, "shared memory", "#f4b183"),
];

/// Values of a thread, or of a kind of memory, at each point of the timeline.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) colour: &'static str,
    /// Value at each point; `None` if unknown.
    pub(super) values: Vec<Option<f64>>,
}

impl Curve {
    /// Returns the last known value.
    pub(super) fn last(&self) -> Option<f64> {
        self.values.iter().rev().flatten().next().copied()
    }

    /// Returns the index of the point with the largest absolute value, and its value. If several points are equal,
    /// returns the first.
    pub(super) fn peak(&self) -> Option<(usize, f64)> {
        let values = self.values.iter().enumerate().filter_map(|(point, value)| Some((point, (*value)?)));
        values.reduce(|peak, next| if next.1.abs() > peak.1.abs() { next } else { peak })
    }

    fn is_known(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }
}

/// Function that returns the value of a panel from the usage at a point; `None` if it is unknown.
pub(super) type Number = fn(&UsagePoint) -> Option<f64>;

/// Returns resident memory by kind, without kinds that are always 0, and the total.
pub(super) fn memory(timeline: &ThreadTimeline) -> (Vec<Curve>, Curve) {
    let curve = |name: &str, colour, value: &dyn Fn(&ProcessPoint) -> Option<f64>| Curve {
        name: name.to_owned(),
        colour,
        values: sums(timeline, value),
    };
    let kind = |(kind, name, colour)| {
        curve(name, colour, &|point: &ProcessPoint| point.values.get(kind).map(|bytes| bytes as f64))
    };
    let kinds = KINDS.into_iter().map(kind).filter(|curve| curve.values.iter().flatten().any(|bytes| *bytes > 0.0));
    (kinds.collect(), curve("total", "#263238", &|point| point.values.rss().map(|bytes| bytes as f64)))
}

/// Returns swapped-out memory, if there is any.
pub(super) fn swap(timeline: &ThreadTimeline) -> Option<Curve> {
    let bytes = |point: &ProcessPoint| point.values.get(ProcessValue::Swap).map(|bytes| bytes as f64);
    let values = sums(timeline, &bytes);
    let is_used = values.iter().flatten().any(|bytes| *bytes > 0.0);
    is_used.then(|| Curve { name: String::from("swap"), colour: "#c2185b", values })
}

/// Returns a curve for each thread of the ranking, and one for all other threads: the total minus the curves of the
/// ranking. If `is_level`, the total still contains the last value of a thread after the thread has ended, so this
/// value is also subtracted at later points.
pub(super) fn threads(timeline: &ThreadTimeline, ranking: &Ranking<'_>, number: Number, is_level: bool) -> Vec<Curve> {
    let points = 0..timeline.spans.len();
    let mut rest = match is_level {
        true => held(timeline, number),
        false => sums(timeline, &|point| number(&point.usage)),
    };
    let mut curves = Vec::with_capacity(ranking.shown.len() + 1);
    for &(series, colour) in &ranking.shown {
        let values: Vec<_> = points.clone().map(|point| series.points.at(point).and_then(number)).collect();
        let mut last = 0.0;
        for (rest, value) in rest.iter_mut().zip(&values) {
            last = value.unwrap_or(if is_level { last } else { 0.0 });
            *rest = rest.map(|rest| rest - last);
        }
        curves.push(Curve { name: name(series, timeline), colour, values });
    }
    curves.retain(Curve::is_known);
    // Sums of rates have rounding errors.
    let is_rest = |value: &f64| value.abs() > if is_level { 0.5 } else { 1e-6 * largest(&curves).max(1.0) };
    if rest.iter().flatten().any(is_rest) {
        let name = match ranking.others {
            0 => String::from("others"),
            others => format!("others ({})", grouped(others)),
        };
        let values = rest.into_iter().map(|value| value.map(|value| if is_rest(&value) { value } else { 0.0 }));
        let values = values.collect();
        curves.push(Curve { name, colour: OTHERS, values });
    }
    curves
}

fn largest(curves: &[Curve]) -> f64 {
    curves.iter().filter_map(Curve::peak).map(|(_, value)| value.abs()).fold(0.0, f64::max)
}

/// Returns the sum of the known values of all processes at each point; `None` if no process has a value.
fn sums(timeline: &ThreadTimeline, value: &dyn Fn(&ProcessPoint) -> Option<f64>) -> Vec<Option<f64>> {
    let at = |point| {
        let values = timeline.processes.iter().filter_map(|process| value(process.points.at(point)?));
        values.fold(None, |sum: Option<f64>, value| Some(sum.unwrap_or(0.0) + value))
    };
    (0..timeline.spans.len()).map(at).collect()
}

/// Returns the sum over all processes at each point. A process without a value at a point has its last value.
fn held(timeline: &ThreadTimeline, number: Number) -> Vec<Option<f64>> {
    let mut sums = vec![None; timeline.spans.len()];
    for process in &timeline.processes {
        let mut last = None;
        for (point, sum) in sums.iter_mut().enumerate() {
            last = process.points.at(point).and_then(|point| number(&point.usage)).or(last);
            *sum = last.map(|last| sum.unwrap_or(0.0) + last).or(*sum);
        }
    }
    sums
}

/// Maximum length of the name of a thread with its ID, in characters.
const NAME: usize = 28;

/// Returns the name of a thread with its ID, and with the PID if there are several processes.
pub(super) fn name(series: &ThreadSeries, timeline: &ThreadTimeline) -> String {
    let id = match timeline.processes.len() {
        0 | 1 => format!(" ({})", series.thread.tid.0),
        _ => format!(" ({}/{})", series.thread.pid, series.thread.tid.0),
    };
    format!("{}{id}", shortened(&escape::visible(series.comm.raw()), NAME.saturating_sub(id.len())))
}
