//! Table with a line for each process.

use memtrace_model::format::{compact_bytes, grouped};
use memtrace_model::{ProcessInterval, ProcessValue, ThreadColumn, ThreadsInterval};

use super::fit::{ALWAYS, fitting};
use crate::escape;
use crate::format::shortened;
use crate::table::{self, Column};

/// Maximum number of processes in the table.
const PROCESSES: usize = 8;
/// Maximum width of a name, in characters.
const NAME: usize = 24;

/// Returns the processes of the table in their order, and the processes beyond the maximum.
pub(super) fn ranked(interval: &ThreadsInterval, sort: ThreadColumn) -> (Vec<&ProcessInterval>, Vec<&ProcessInterval>) {
    let mut processes: Vec<_> = interval.processes.iter().collect();
    processes.sort_by(|one, other| sort.compare((&one.comm, &one.usage), (&other.comm, &other.usage)));
    let more = processes.split_off(PROCESSES.min(processes.len()));
    (processes, more)
}

/// Returns the lines of the table.
pub(super) fn lines(processes: &[&ProcessInterval], seconds: f64, width: usize) -> Vec<String> {
    let all = || processes.iter().copied();
    let numbers = |head, cell: &dyn Fn(&ProcessInterval) -> String| Column::numbers(head, all().map(cell));
    let value = |head, value: ProcessValue, cell: fn(u64) -> String| {
        numbers(head, &|process| process.values.get(value).map_or_else(|| String::from("-"), cell))
    };
    let size = |head, kind| value(head, kind, |bytes| compact_bytes(bytes as f64));
    let rss = |process: &ProcessInterval| {
        process.values.rss().map_or_else(|| String::from("-"), |bytes| compact_bytes(bytes as f64))
    };
    let cpu = |process: &ProcessInterval| format!("{:.1}", ThreadColumn::Cpu.value(&process.usage, seconds) * 100.0);
    let mut columns = vec![
        (ALWAYS, numbers("PID", &|process| process.pid.to_string())),
        (ALWAYS, Column::text("PROCESS", all().map(|process| shortened(&escape::visible(process.comm.raw()), NAME)))),
        (9, value("THREADS", ProcessValue::Threads, grouped)),
        (4, numbers("STARTED", &|process| grouped(process.started))),
        (3, numbers("ENDED", &|process| grouped(process.ended_threads()))),
        (8, numbers("CPU%", &cpu)),
        (10, numbers("RSS", &rss)),
        (6, size("ANON", ProcessValue::RssAnon)),
        (5, size("FILE", ProcessValue::RssFile)),
        (1, size("SHMEM", ProcessValue::RssShmem)),
        (7, size("SWAP", ProcessValue::Swap)),
        (2, value("FDS", ProcessValue::Descriptors, grouped)),
        (11, Column::text("HEAP", all().map(|process| process.source.source.name().to_owned()))),
    ];
    if all().any(|process| !note(process).is_empty()) {
        columns.push((12, Column::text("NOTE", all().map(|process| note(process).to_owned()))));
    }
    table::lines(&fitting(columns, width), width)
}

const fn note(process: &ProcessInterval) -> &'static str {
    match (process.has_exited, process.source.is_stale) {
        (true, _) => "exited",
        (false, true) => "stale",
        (false, false) => "",
    }
}
