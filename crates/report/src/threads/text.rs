//! Tables of processes and threads for a terminal.

mod machine;
mod options;
mod processes;
mod rows;

pub use self::options::ThreadTableOptions;

use std::collections::BTreeMap;
use std::io;

use memtrace_model::format::{clock, counted, duration, grouped};
use memtrace_model::{Pid, ProcessInterval, ThreadColumn, ThreadsInterval};

use super::event;
use super::history::ThreadHistory;
use crate::{Format, table, wrap};

/// Indentation of the continued lines of the machine and of notes.
const INDENT: usize = 10;

/// Maximum number of exits of processes with a line each.
const MOST_EXITS: usize = 3;

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
    let processes = processes::fit(&shown, interval.seconds(), width);
    lines.extend(processes.lines(width));
    if !more.is_empty() {
        lines.push(format!("  … and {}", counted(more.len() as u64, "more process", "more processes")));
    }
    lines.push(String::new());
    let (threads, hidden) = rows::fit([&shown, &more], interval.seconds(), history, options);
    lines.extend(threads.lines(width));
    if hidden > 0 {
        lines.push(format!("  … and {}", counted(hidden as u64, "more thread", "more threads")));
    }
    lines.extend(left_out(&processes.left_out, &threads.left_out));
    wrap::write(&lines, INDENT, width, out)
}

/// Returns the line about the columns that do not fit; `None` if all do.
fn left_out(of_processes: &[&str], of_threads: &[&str]) -> Option<String> {
    let tables = [(of_processes, "processes"), (of_threads, "threads")];
    let tables = tables.into_iter().filter(|(heads, _)| !heads.is_empty());
    let heads: Vec<_> = tables.map(|(heads, of)| format!("{} of {of}", heads.join(", "))).collect();
    (!heads.is_empty()).then(|| table::note_of_left_out(&heads.join("; "), Format::Csv))
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

/// Returns a line for each event and for each kind of loss. Many exits have one line together.
fn notes(interval: &ThreadsInterval) -> Vec<String> {
    let names = interval.processes.iter().map(|process| (process.pid, &process.comm)).collect::<BTreeMap<_, _>>();
    let name = |pid: Pid| names.get(&pid).copied();
    let line = |at, text: String| format!("event     {}  {text}", clock(at));
    let exits = interval.events.iter().filter_map(|moment| event::exited(&moment.kind)).collect::<Vec<_>>();
    let has_many = exits.len() > MOST_EXITS;
    let events = interval.events.iter().filter(|moment| !has_many || event::exited(&moment.kind).is_none());
    let events = events.map(|moment| line(moment.at, event::text(&moment.kind, name)));
    let exits = exits.into_iter().map(name);
    let exits = has_many.then(|| line(interval.span.end, event::exits(exits)));
    let losses = interval.losses.iter().filter(|(_, count)| *count > 0);
    let losses = losses.map(|(reason, count)| {
        let head = if reason.is_expected() { "note" } else { "lost" };
        format!("{head}      {} {} ({})", grouped(count), reason.name(), reason.explanation())
    });
    events.chain(exits).chain(losses).collect()
}
