//! Tables of processes and threads for a terminal.

mod fit;
mod machine;
mod options;
mod processes;
mod rows;

pub use self::options::ThreadTableOptions;

use std::io;

use memtrace_model::format::{clock, counted, duration, grouped};
use memtrace_model::{ProcessInterval, ThreadColumn, ThreadsInterval};

use super::event;
use super::history::ThreadHistory;
use crate::format::shortened;

/// Writes the machine, the processes and the threads of an interval.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(
    interval: &ThreadsInterval,
    history: &ThreadHistory,
    options: &ThreadTableOptions,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let width = options.width.unwrap_or(usize::MAX);
    let (shown, more) = processes::ranked(interval, options.sort);
    let mut lines = vec![head(interval, options.sort)];
    lines.extend(machine::lines(interval));
    lines.extend(notes(interval));
    lines.push(String::new());
    lines.extend(processes::lines(&shown, interval.seconds(), width));
    if !more.is_empty() {
        lines.push(format!("  … and {}", counted(more.len() as u64, "more process", "more processes")));
    }
    lines.push(String::new());
    lines.extend(rows::lines([&shown, &more], interval.seconds(), history, options));
    lines.iter().try_for_each(|line| writeln!(out, "{}", shortened(line, width)))
}

/// Returns the first line: `1:30  412 threads of 2 processes in 1 s, sorted by net`.
fn head(interval: &ThreadsInterval, sort: ThreadColumn) -> String {
    let listed = |process: &ProcessInterval| process.threads.iter().filter(|thread| !thread.has_ended()).count() as u64;
    let threads = interval.processes.iter().map(|process| listed(process) + process.others.count).sum();
    let processes = counted(interval.processes.len() as u64, "process", "processes");
    let length = duration(interval.span.end.saturating_sub(interval.span.start));
    let threads = counted(threads, "thread", "threads");
    format!("{}  {threads} of {processes} in {length}, sorted by {}", clock(interval.span.end), sort.name())
}

/// Returns a line for each event and for each kind of loss.
fn notes(interval: &ThreadsInterval) -> Vec<String> {
    let name = |pid| interval.processes.iter().find(|process| process.pid == pid).map(|process| &process.comm);
    let event = |at, kind| format!("event     {}  {}", clock(at), event::text(kind, name));
    let events = interval.events.iter().map(|moment| event(moment.at, &moment.kind));
    let losses = interval.losses.iter().filter(|(_, count)| *count > 0);
    let losses = losses
        .map(|(reason, count)| format!("lost      {} {} ({})", grouped(count), reason.name(), reason.explanation()));
    events.chain(losses).collect()
}
