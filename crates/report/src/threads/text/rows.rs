//! Table with a line for each thread.

mod columns;

use memtrace_model::format::grouped;
use memtrace_model::{CounterSource, OtherThreads, Pid, ProcessInterval, ThreadInterval, ThreadUsage, columns_of};

use self::columns::COLUMNS;
use super::options::ThreadTableOptions;
use crate::escape;
use crate::format::shortened;
use crate::table::{self, Column, Fit};
use crate::threads::history::{LENGTH, ThreadHistory};

/// Minimum and maximum width of a name, in columns of a terminal. The minimum keeps columns from moving between
/// intervals.
const NAME: [usize; 2] = [20, 24];
/// Minimum width of a thread ID, for the same reason: the kernel's limit of IDs has seven digits (`PID_MAX_LIMIT`,
/// include/linux/threads.h).
const TID: usize = 7;
/// Minimum width of a sparkline, in columns of a terminal.
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

/// Returns the columns of the table that fit, and the number of threads without rows. `shown`: processes in the table
/// of processes. `more`: the other processes. Threads of `shown` and of `more` can have rows, but all processes in
/// `more` share the rows for ended and other threads.
pub(super) fn fit(
    [shown, more]: [&[&ProcessInterval]; 2],
    seconds: f64,
    history: &ThreadHistory,
    options: &ThreadTableOptions,
) -> (Fit, usize) {
    let width = options.width.unwrap_or(usize::MAX);
    let mut rows = threads([shown, more], options);
    let hidden = rows.len().saturating_sub(options.rows);
    rows.truncate(options.rows);
    rows.extend(shown.iter().flat_map(|process| sums(Some(process.pid), &[process])));
    rows.extend(sums(None, more));
    let mut columns = leading(&rows, shown.len() + more.len() > 1);
    columns.extend(COLUMNS.iter().map(|column| {
        let cells = rows.iter().map(|row| column.cell(row.source, &row.usage, seconds));
        let numbers = Column::numbers(column.head, cells);
        if column.shows(options.sort) { numbers } else { numbers.with_importance(column.importance) }
    }));
    columns.push(Column::text("HISTORY", [" ".repeat(SHORTEST)]).with_importance(SPARKLINE));
    let mut fit = table::fit(columns, width);
    if fit.columns.pop_if(|column| column.head() == "HISTORY").is_some() {
        let room = width.saturating_sub(table::total_width(&fit.columns) + 2).min(LENGTH);
        let line = |row: &Row<'_>| row.thread.map_or_else(String::new, |it| history.sparkline(&it.thread, room));
        fit.columns.push(Column::text("HISTORY", rows.iter().map(line)));
    }
    (fit, hidden)
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
fn leading(rows: &[Row<'_>], has_processes: bool) -> Vec<Column> {
    let [least, most] = NAME;
    let tid = |row: &Row<'_>| row.thread.map_or_else(String::new, |thread| thread.thread.tid.0.to_string());
    let name = |row: &Row<'_>| shortened_row_name(&row.name, most);
    let state = |row: &Row<'_>| row.thread.map_or_else(String::new, |thread| thread.state.letter().to_string());
    let pid = |row: &Row<'_>| row.pid.map_or_else(|| String::from("more"), |pid| pid.to_string());
    let mut columns = vec![
        Column::numbers("TID", rows.iter().map(tid)).at_least(TID),
        Column::names("NAME", rows.iter().map(name), shortened_row_name).at_least(least),
        Column::text("S", rows.iter().map(state)).with_importance(14),
    ];
    if has_processes {
        columns.insert(0, Column::numbers("PID", rows.iter().map(pid)).with_importance(13));
    }
    columns
}

/// Returns a name in at most `most` columns of a terminal. The number in the name of a sum is not cut.
fn shortened_row_name(name: &str, most: usize) -> String {
    match name.rsplit_once(" (").filter(|_| name.starts_with('[')) {
        Some((title, count)) => {
            let count = format!(" ({count}");
            shortened(title, most.saturating_sub(columns_of(&count))) + &count
        }
        None => shortened(name, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_sum_is_not_cut() {
        let shown = |most| shortened_row_name("[ended threads] (1,234,567)", most);
        assert_eq!([shown(27), shown(24)], ["[ended threads] (1,234,567)", "[ended thre… (1,234,567)"]);
        assert_eq!([shown(12), shown(5)], [" (1,234,567)"; 2]);
        assert_eq!(shortened_row_name("worker (1)", 5), "work…");
    }
}
