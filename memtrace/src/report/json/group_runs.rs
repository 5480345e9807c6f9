//! Groups of ended processes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::numbers::Numbers;
use crate::model::{EndedGroup, EndedRun, ImageEnd, Profile};

#[derive(Serialize)]
pub(super) struct GroupRuns {
    runs: u64,
    ends: BTreeMap<&'static str, u64>,
    first_start_s: f64,
    last_end_s: Option<f64>,
    largest_runs: Vec<Run>,
}

impl GroupRuns {
    /// `have_ended` is false for a group of processes that run.
    pub(super) fn new(profile: &Profile, group: &EndedGroup, have_ended: bool) -> Self {
        Self {
            runs: group.runs,
            ends: group.ends.iter().map(|(&end, &runs)| (end_name(end), runs)).collect(),
            first_start_s: group.first_start.as_secs_f64(),
            last_end_s: have_ended.then_some(group.last_end.as_secs_f64()),
            largest_runs: group.largest.iter().map(|run| Run::new(profile, run)).collect(),
        }
    }
}

#[derive(Serialize)]
struct Run {
    pid: u32,
    start_s: f64,
    end_s: f64,
    ended: &'static str,
    totals: Numbers,
}

impl Run {
    fn new(profile: &Profile, run: &EndedRun) -> Self {
        Self {
            pid: run.pid.0,
            start_s: run.start.as_secs_f64(),
            end_s: run.end.as_secs_f64(),
            ended: end_name(run.ended),
            totals: Numbers::without_errors(profile, run.total),
        }
    }
}

pub(super) const fn end_name(end: ImageEnd) -> &'static str {
    match end {
        ImageEnd::Exit => "exit",
        ImageEnd::OomKill => "oom_kill",
        ImageEnd::Exec => "exec",
    }
}
