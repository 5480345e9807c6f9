//! Table with a line for each thread.

mod columns;

use memtrace_model::format::{counted, grouped};
use memtrace_model::{CounterSource, OtherThreads, Pid, ProcessInterval, ThreadInterval, ThreadUsage};

use self::columns::COLUMNS;
use super::fit::{ALWAYS, fitting};
use super::options::ThreadTableOptions;
use crate::escape;
use crate::format::shortened;
use crate::table::{self, Column};
use crate::threads::history::{LENGTH, ThreadHistory};

/// Minimum and maximum width of a name, in characters. The minimum keeps columns from moving between intervals.
const NAME: [usize; 2] = [20, 24];
/// Minimum width of a sparkline, in characters.
const SHORTEST: usize = 8;
/// Importance of the column of sparklines.
const SPARKLINE: u8 = 8;

/// Row: a thread, or a sum of threads without rows.
struct Row<'a> {
    /// PID; `None` for a sum over several processes.
    pid: Option<Pid>,
    name: String,
    thread: Option<&'a ThreadInterval>,
    source: CounterSource,
    usage: ThreadUsage,
}

/// Returns the lines of the table. `shown`: processes in the table of processes. `more`: the other processes. Threads
/// of both can have rows, but all processes in `more` share the rows for ended and other threads.
pub(super) fn lines(
    [shown, more]: [&[&ProcessInterval]; 2],
    seconds: f64,
    history: &ThreadHistory,
    options: &ThreadTableOptions,
) -> Vec<String> {
    let width = options.width.unwrap_or(usize::MAX);
    let mut rows = threads([shown, more], options);
    let hidden = rows.len().saturating_sub(options.rows);
    rows.truncate(options.rows);
    rows.extend(shown.iter().flat_map(|process| sums(Some(process.pid), &[process])));
    rows.extend(sums(None, more));
    let mut columns = leading(&rows, shown.len() + more.len() > 1);
    columns.extend(COLUMNS.iter().map(|column| {
        let importance = if column.shows(options.sort) { ALWAYS } else { column.importance };
        let cells = rows.iter().map(|row| column.cell(row.source, &row.usage, seconds));
        (importance, Column::numbers(column.head, cells))
    }));
    columns.push((SPARKLINE, Column::text("HISTORY", [" ".repeat(SHORTEST)])));
    let mut columns = fitting(columns, width);
    if columns.last().is_some_and(|column| column.head() == "HISTORY") {
        columns.pop();
        let room = width.saturating_sub(table::total_width(&columns) + 2).min(LENGTH);
        let line = |row: &Row<'_>| row.thread.map_or_else(String::new, |it| history.sparkline(&it.thread, room));
        columns.push(Column::text("HISTORY", rows.iter().map(line)));
    }
    let mut lines = table::lines(&columns, width);
    if hidden > 0 {
        lines.push(format!("  … and {}", counted(hidden as u64, "more thread", "more threads")));
    }
    lines
}

/// Returns a row for each thread, in the order of the sort column.
fn threads<'a>(processes: [&[&'a ProcessInterval]; 2], options: &ThreadTableOptions) -> Vec<Row<'a>> {
    let of_process = |process: &&'a ProcessInterval| {
        let source = process.source.source;
        process.threads.iter().map(move |thread| (thread, source)).collect::<Vec<_>>()
    };
    let mut threads: Vec<_> = processes.into_iter().flatten().flat_map(of_process).collect();
    threads.sort_by(|(one, _), (other, _)| options.sort.order(one, other));
    let row = |(thread, source): (&'a ThreadInterval, CounterSource)| Row {
        pid: Some(thread.thread.pid),
        name: escape::visible(thread.comm.raw()),
        thread: Some(thread),
        source,
        usage: thread.usage,
    };
    threads.into_iter().map(row).collect()
}

/// Returns rows for the sums of ended threads and of other threads of `processes`, if there are any.
fn sums(pid: Option<Pid>, processes: &[&ProcessInterval]) -> Vec<Row<'static>> {
    let sources = processes.iter().map(|process| process.source.source);
    // If the processes have different sources, the heap counters of the sum are unknown.
    let source = sources.reduce(|one, other| if one == other { one } else { CounterSource::None });
    let sum = |kind: fn(&ProcessInterval) -> OtherThreads, title: &str| {
        let sum = processes.iter().map(|process| kind(process)).fold(OtherThreads::default(), |sum, others| {
            OtherThreads { count: sum.count + others.count, usage: sum.usage.plus(others.usage) }
        });
        let name = format!("[{title}] ({})", grouped(sum.count));
        let source = source.unwrap_or_default();
        (sum != OtherThreads::default()).then_some(Row { pid, name, thread: None, source, usage: sum.usage })
    };
    let rows = [sum(|process| process.ended, "ended threads"), sum(|process| process.others, "others")];
    rows.into_iter().flatten().collect()
}

/// Returns the columns before the numbers. `has_processes`: true to include the PID.
fn leading(rows: &[Row<'_>], has_processes: bool) -> Vec<(u8, Column)> {
    let tid = |row: &Row<'_>| row.thread.map_or_else(String::new, |thread| format!("{:>7}", thread.thread.tid.0));
    let name = |row: &Row<'_>| {
        let [least, most] = NAME;
        format!("{:<least$}", shortened(&row.name, most))
    };
    let state = |row: &Row<'_>| row.thread.map_or_else(String::new, |thread| thread.state.letter().to_string());
    let pid = |row: &Row<'_>| row.pid.map_or_else(|| String::from("more"), |pid| pid.to_string());
    let mut columns = vec![
        (ALWAYS, Column::numbers("TID", rows.iter().map(tid))),
        (ALWAYS, Column::text("NAME", rows.iter().map(name))),
        (14, Column::text("S", rows.iter().map(state))),
    ];
    if has_processes {
        columns.insert(0, (13, Column::numbers("PID", rows.iter().map(pid))));
    }
    columns
}
