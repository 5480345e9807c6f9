//! Table with a line for each process.

use memtrace_model::format::{compact_bytes, grouped};
use memtrace_model::{ProcessInterval, ProcessValue, ThreadColumn, ThreadsInterval};

use crate::escape;
use crate::format::shortened;
use crate::table::{self, Column, Fit};

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

/// Returns the columns of the table that fit in `width`.
pub(super) fn fit(processes: &[&ProcessInterval], seconds: f64, width: usize) -> Fit {
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
        numbers("PID", &|process| process.pid.to_string()),
        Column::names("PROCESS", all().map(|process| shortened(&escape::visible(process.comm.raw()), NAME)), shortened),
        value("THREADS", ProcessValue::Threads, grouped).with_importance(9),
        numbers("STARTED", &|process| grouped(process.started)).with_importance(4),
        numbers("ENDED", &|process| grouped(process.ended_threads())).with_importance(3),
        numbers("CPU%", &cpu).with_importance(8),
        numbers("RSS", &rss).with_importance(10),
        size("ANON", ProcessValue::RssAnon).with_importance(6),
        size("FILE", ProcessValue::RssFile).with_importance(5),
        size("SHMEM", ProcessValue::RssShmem).with_importance(1),
        size("SWAP", ProcessValue::Swap).with_importance(7),
        value("FDS", ProcessValue::Descriptors, grouped).with_importance(2),
        Column::text("HEAP", all().map(|process| process.source.source.name().to_owned())).with_importance(11),
    ];
    if all().any(|process| !note(process).is_empty()) {
        columns.push(Column::text("NOTE", all().map(|process| note(process).to_owned())).with_importance(12));
    }
    table::fit(columns, width)
}

const fn note(process: &ProcessInterval) -> &'static str {
    match (process.has_exited, process.source.is_stale) {
        (true, _) => "exited",
        (false, true) => "stale",
        (false, false) => "",
    }
}
