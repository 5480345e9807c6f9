//! The table of processes.

use std::cmp::Reverse;
use std::io;

use super::super::{label, phrase};
use crate::model::{Amount, Ending, Metric, ProcessProfile, Profile};

/// More rows than this are not read by anyone; the other formats have them all.
const MOST: usize = 20;
const COMMAND_COLUMNS: usize = 16;

/// Writes the processes, the greatest by `metric` first.
pub(super) fn write(profile: &Profile, metric: Metric, out: &mut dyn io::Write) -> io::Result<()> {
    let mut processes: Vec<_> = profile.processes.iter().collect();
    processes.sort_by_key(|process| Reverse(value(process, metric)));
    let peaks = processes.iter().any(|process| process.peak.is_some());

    writeln!(out, "\nProcesses by {}\n", phrase::what(profile, metric))?;
    let head = row(["PID", "COMMAND", "LIVE", "BLOCKS", "ALLOCATED", "FREED"], peaks.then_some("PEAK"));
    writeln!(out, "{}", head.trim_end())?;
    for process in processes.iter().take(MOST) {
        writeln!(out, "{}", line(process, peaks).trim_end())?;
    }
    match processes.len().saturating_sub(MOST) {
        0 => Ok(()),
        hidden => writeln!(out, "  … and {}", phrase::counted(hidden as u64, "other", "others")),
    }
}

fn value(process: &ProcessProfile, metric: Metric) -> u64 {
    metric.of_usage(&process.total).unwrap_or_else(|| process.peak.map_or(0, |peak| peak.0))
}

fn line(process: &ProcessProfile, peaks: bool) -> String {
    let total = process.total;
    let peak = process.peak.map_or_else(|| String::from("-"), |peak| peak.to_string());
    let cells = [
        &process.pid.to_string(),
        &phrase::shortened(&label::plain(&process.comm), COMMAND_COLUMNS),
        &total.live.bytes.to_string(),
        &phrase::grouped(total.live.count),
        &total.alloc.bytes.to_string(),
        &total.free.bytes.to_string(),
    ];
    let row = row(cells.map(String::as_str), peaks.then_some(&peak));
    match ending(process) {
        Some(ending) => format!("{row}  {ending}"),
        None => row,
    }
}

fn row([pid, command, live, blocks, allocated, freed]: [&str; 6], peak: Option<&str>) -> String {
    let peak = peak.map(|peak| format!(" {peak:>12}")).unwrap_or_default();
    format!("{pid:>9}  {command:<COMMAND_COLUMNS$} {live:>12} {blocks:>12} {allocated:>12} {freed:>12}{peak}")
}

fn ending(process: &ProcessProfile) -> Option<String> {
    match process.ended? {
        Ending::Exit => Some(String::from("exited")),
        Ending::Exec if process.discarded == Amount::default() => Some(String::from("replaced by exec")),
        Ending::Exec => Some(format!("replaced by exec, {} discarded", phrase::amount(process.discarded))),
    }
}
