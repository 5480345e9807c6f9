//! Fields of memory over time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::model::{MemoryCounter, MemoryTimeline, ProcessTimeline, Steps};

/// Memory over time. Series have a value for each moment, and null before the first known one.
#[derive(Serialize)]
pub(super) struct TimelineFields<'a> {
    moments_s: Vec<f64>,
    total: BTreeMap<&'static str, Vec<Option<u64>>>,
    processes: Vec<ProcessFields<'a>>,
    pressure: BTreeMap<&'static str, Vec<Option<u64>>>,
    left_out: u64,
    marks: Vec<MarkFields<'a>>,
}

#[derive(Serialize)]
struct ProcessFields<'a> {
    pid: u32,
    comm: &'a str,
    #[serde(flatten)]
    counters: BTreeMap<&'static str, Vec<Option<u64>>>,
}

#[derive(Serialize)]
struct MarkFields<'a> {
    at_s: f64,
    text: &'a str,
}

impl<'a> From<&'a MemoryTimeline> for TimelineFields<'a> {
    fn from(timeline: &'a MemoryTimeline) -> Self {
        let moments = timeline.moments.len();
        let process = |process: &'a ProcessTimeline| ProcessFields {
            pid: process.id.pid.0,
            comm: process.comm.raw(),
            counters: series(&process.counters, moments),
        };
        Self {
            moments_s: timeline.moments.iter().map(Duration::as_secs_f64).collect(),
            total: series(&timeline.total, moments),
            processes: timeline.processes.iter().map(process).collect(),
            pressure: timeline
                .pressure
                .iter()
                .map(|(counter, steps)| (counter.name().trim_start_matches("pressure."), values(steps, moments)))
                .collect(),
            left_out: timeline.left_out,
            marks: timeline.marks.iter().map(|(at, text)| MarkFields { at_s: at.as_secs_f64(), text }).collect(),
        }
    }
}

fn series(counters: &BTreeMap<MemoryCounter, Steps>, moments: usize) -> BTreeMap<&'static str, Vec<Option<u64>>> {
    counters.iter().map(|(counter, steps)| (counter.name(), values(steps, moments))).collect()
}

fn values(steps: &Steps, moments: usize) -> Vec<Option<u64>> {
    (0..moments).map(|moment| steps.at(moment)).collect()
}
