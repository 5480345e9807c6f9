//! Converts memory over time, and time windows of a trace, to JSON.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use memtrace_json::{self as schema, Object};
use memtrace_model::{MemoryCounter, MemoryTimeline, ProcessTimeline, Steps};

use super::objects::by_name;

pub(super) fn window(window: &Range<Duration>) -> schema::Window {
    schema::Window { from_s: window.start.as_secs_f64(), to_s: window.end.as_secs_f64() }
}

pub(super) fn timeline(timeline: &MemoryTimeline) -> schema::Timeline<'_> {
    let moments = timeline.moments.len();
    let process = |process: &'_ ProcessTimeline| schema::ProcessTimeline {
        pid: process.id.pid.0,
        comm: process.comm.raw().to_owned().into(),
        series: series(&process.counters, moments),
    };
    let pressure = timeline.pressure.iter();
    schema::Timeline {
        moments_s: timeline.moments.iter().map(Duration::as_secs_f64).collect(),
        total: series(&timeline.total, moments),
        processes: timeline.processes.iter().map(process).collect(),
        pressure: by_name(
            pressure.map(|(counter, steps)| (counter.name().trim_start_matches("pressure."), values(steps, moments))),
        ),
        left_out: timeline.left_out,
        marks: timeline
            .marks
            .iter()
            .map(|(at, text)| schema::Mark { at_s: at.as_secs_f64(), text: text.as_str().into() })
            .collect(),
    }
}

fn series(counters: &BTreeMap<MemoryCounter, Steps>, moments: usize) -> Object<'static, Vec<Option<u64>>> {
    by_name(counters.iter().map(|(counter, steps)| (counter.name(), values(steps, moments))))
}

fn values(steps: &Steps, moments: usize) -> Vec<Option<u64>> {
    (0..moments).map(|moment| steps.at(moment)).collect()
}
