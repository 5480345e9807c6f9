//! Summary of all readings.

use std::time::Duration;

use memtrace_model::format::{counted, short};
use memtrace_model::{Bytes, WorkingSetMethod, WorkingSets};

use super::knee::knee;

/// Returns sentences with the resident memory and its touched part in the last reading. If the readings are cumulative,
/// the sentences include the touched memory at the knee of the curve. `None` without a measured process.
pub(super) fn summary(readings: &[WorkingSets]) -> Option<String> {
    let last = readings.last().filter(|sets| !sets.processes.is_empty())?;
    let total = last.memory();
    let point = |sets: &WorkingSets| (sets.duration(), sets.memory().referenced);
    let points: Vec<(Duration, Bytes)> = readings.iter().map(point).collect();
    let is_cumulative = last.is_cumulative;
    let processes = match last.processes.len() {
        1 => String::new(),
        some => format!(" in {}", counted(some as u64, "process", "processes")),
    };
    let (end, used) = point(last);
    let knee = if is_cumulative { knee(&points).filter(|knee| knee + 1 < points.len()) } else { None };
    let (time, first) = knee.map_or((end, used), |knee| points[knee]);
    let mut text =
        format!("{first} of {} resident{processes} {} within {}", total.resident, last.method.predicate(), short(time));
    if knee.is_some() {
        text += &format!(", {used} within {}", short(end));
    }
    text.push('.');
    if last.method == WorkingSetMethod::Faults {
        text += " This is a lower bound: touches of pages that were mapped before cause no fault.";
    }
    if total.least_referenced < total.referenced {
        let is_shared = last.processes.len() > 1 && matches!(last.distinct, Some(Ok(_)));
        let shared = if is_shared { ", and processes may have touched the same shared pages" } else { "" };
        text += &format!(" Huge pages count as a whole{shared}: it was at least {}.", total.least_referenced);
    }
    if !is_cumulative && readings.len() > 1 {
        let each = points.iter().map(|(_, referenced)| *referenced);
        if let (Some(least), Some(most)) = (each.clone().min(), each.max()) {
            text += &format!(" All readings: {least} to {most}.");
        }
    }
    Some(text)
}
