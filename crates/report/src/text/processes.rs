//! Table of processes.

use super::cells;
use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{Bytes, Cgroup, ClassColumns, ImageEnd, ProcessProfile, Profile, Quantity, StallStats};

use super::page_columns::{self, Memory};
use super::text_writer::TextWriter;
use crate::estimate::{SampledPart, SampledProcesses};
use crate::kernel_reported::KernelReported;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::table::Column;
use crate::{escape, format, stalls};

/// Maximum length of a short name (`TASK_COMM_LEN`, include/linux/sched.h), without the terminating NUL.
pub(super) const COMMAND_COLUMNS: usize = 15;
const USER_COLUMNS: usize = 10;
/// Number of shown characters of a container ID, as in `docker ps`.
const ID_CHARACTERS: usize = 12;
/// Number of shown characters of a pod UID, as in names of pods.
const UID_CHARACTERS: usize = 8;

/// Row: a process, a group of processes, or the sum of the processes that are not shown.
struct Row {
    pid: String,
    command: String,
    user: Option<String>,
    sums: Sums,
    peak: Option<Bytes>,
    threads: Option<u32>,
    ended: &'static str,
    /// Minimum size of followed blocks, if the process is demoted: `≥64B`.
    followed: Option<String>,
    /// Process that owns the memory, if the process uses the memory of another process.
    memory: Option<String>,
    cgroup: Option<String>,
}

/// Totals of a row. They can be summed over the processes that are not shown.
#[derive(Clone, Copy, Default)]
struct Sums {
    memory: Memory,
    sampled: SampledPart,
    blocks_a_second: f64,
    bytes_a_second: f64,
    waits: StallStats,
}

/// Writes the `top` processes by the metric, and the sum of the other processes.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut TextWriter<'_>) -> io::Result<()> {
    if options.top == 0 {
        return Ok(());
    }
    let view = MetricView::new(profile, options.metric);
    let sampled = SampledProcesses::of(profile);
    let mut processes: Vec<_> = profile.processes.iter().enumerate().collect();
    // Page faults decide between equal values, because all processes without a sampled page have the value 0.
    let faults = |process: &ProcessProfile| process.faults.map_or(0, |faults| faults.total());
    processes.sort_by_key(|(_, process)| Reverse((view.process_value(process), faults(process))));
    let others = processes.split_off(options.top.min(processes.len()));
    let duration = profile.run.duration;
    let shown = processes.iter().map(|&(index, process)| row(process, sampled.get(index), duration));
    let rows: Vec<_> = shown.chain(rest(&others, &sampled, duration)).collect();

    writeln!(out, "\nProcesses by {}\n", view.title())?;
    out.table(columns(&rows, view))
}

fn row(process: &ProcessProfile, sampled: SampledPart, duration: Duration) -> Row {
    Row {
        pid: process.group.as_ref().map_or_else(|| process.pid.to_string(), |_| String::new()),
        command: command(process),
        user: process.user.as_ref().map(|user| format::shortened(&escape::visible(&user.to_string()), USER_COLUMNS)),
        sums: Sums::of(process, sampled, duration),
        peak: process.peak,
        threads: process.threads,
        ended: ended(process),
        followed: followed(process),
        memory: process.shares_memory_of.map(|main| format!("shares the memory of {main}")),
        cgroup: process.cgroup.as_ref().map(|cgroup| escape::visible(&place(cgroup))),
    }
}

fn command(process: &ProcessProfile) -> String {
    let name = escape::visible(process.comm.raw());
    let Some(group) = &process.group else { return format::shortened(&name, COMMAND_COLUMNS) };
    format!("{} {}", format::shortened(&name, COMMAND_COLUMNS), escape::times(group.runs))
}

/// Returns the row of the processes that are not shown.
fn rest(others: &[(usize, &ProcessProfile)], sampled: &SampledProcesses, duration: Duration) -> Option<Row> {
    let sums = others.iter().map(|&(index, process)| Sums::of(process, sampled.get(index), duration)).reduce(Sums::and);
    sums.map(|sums| Row {
        pid: String::new(),
        command: number::counted(others.iter().map(|(_, process)| process.runs()).sum(), "other", "others"),
        user: Some(String::new()),
        sums,
        peak: None,
        threads: None,
        ended: "",
        followed: others.iter().any(|(_, process)| !process.demotion.is_none()).then(|| String::from("in part")),
        memory: Some(String::new()),
        cgroup: Some(String::new()),
    })
}

/// Returns the columns that have values.
fn columns(rows: &[Row], view: MetricView<'_>) -> Vec<Column> {
    let profile = view.profile();
    let layout = profile.run.class.facts().columns;
    let [_, alloc, free, rate] = profile.run.class.words().heads;
    let live = format::live_head(profile);
    let sums = |head, bytes: Quantity| {
        let cell = |row: &Row| cells::sum(view, &row.sums.memory.usage, &row.sums.sampled, bytes);
        Column::numbers(head, rows.iter().map(cell))
    };
    let is_sampled = rows.iter().any(|row| row.sums.sampled.is_sampled());
    let dash = || String::from("-");
    let known = |text: &Option<String>| text.clone().unwrap_or_else(dash);
    let is_known = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());

    let mut columns = vec![
        Column::numbers("PID", rows.iter().map(|row| row.pid.clone())),
        Column::text("COMMAND", rows.iter().map(|row| row.command.clone())),
    ];
    if rows.iter().any(|row| is_known(&row.user)) {
        columns.push(Column::text("USER", rows.iter().map(|row| known(&row.user))).with_importance(4));
    }
    match layout {
        ClassColumns::Stalls => columns.extend(of_waits(rows)),
        ClassColumns::Pages => {
            let memory: Vec<_> = rows.iter().map(|row| row.sums.memory).collect();
            columns.extend(page_columns::columns(&memory, view));
        }
        ClassColumns::Amounts => columns.extend(cells::held(profile, live, sums)),
    }
    if rows.iter().any(|row| row.peak.is_some()) {
        let peak = |row: &Row| row.peak.map_or_else(dash, |peak| cells::peak(profile, peak, &row.sums.sampled));
        columns.push(Column::numbers("PEAK", rows.iter().map(peak)).with_importance(6));
    }
    if layout == ClassColumns::Amounts {
        columns.push(sums(alloc, Quantity::AllocBytes).with_importance(8));
        // If the table has columns for live memory and for memory held at exit, or errors, there is no room for the freed
        // amount. It is the allocated amount minus the amounts in these two columns.
        if !(is_sampled || (format::shows_live(profile) && format::shows_exit(profile))) {
            let freed = |row: &Row| cells::amount(view.measure(), row.sums.memory.usage.free());
            columns.push(Column::numbers(free, rows.iter().map(freed)).with_importance(5));
        }
    }
    // A rate has the relative error of the allocated amount, so rates have no columns if the amounts have errors.
    if layout == ClassColumns::Amounts && !is_sampled {
        let blocks = |row: &Row| number::compact_rate(row.sums.blocks_a_second);
        columns.push(Column::numbers(rate, rows.iter().map(blocks)).with_importance(2));
        let bytes = |row: &Row| number::compact_bytes(row.sums.bytes_a_second);
        columns.push(Column::numbers("B/s", rows.iter().map(bytes)).with_importance(1));
    }
    if rows.iter().any(|row| row.threads.is_some()) {
        let threads = |row: &Row| row.threads.map_or_else(dash, |count| count.to_string());
        columns.push(Column::numbers("THR", rows.iter().map(threads)).with_importance(3));
    }
    if rows.iter().any(|row| !row.ended.is_empty()) {
        columns.push(Column::text("ENDED", rows.iter().map(|row| row.ended.to_owned())).with_importance(7));
    }
    if rows.iter().any(|row| is_known(&row.followed)) {
        let all = |row: &Row| row.followed.clone().unwrap_or_else(|| String::from("all"));
        columns.push(Column::text("FOLLOWED", rows.iter().map(all)));
    }
    if rows.iter().any(|row| is_known(&row.memory)) {
        let own = |row: &Row| row.memory.clone().unwrap_or_else(|| String::from("own"));
        columns.push(Column::text("MEMORY", rows.iter().map(own)));
    }
    if rows.iter().any(|row| is_known(&row.cgroup)) {
        columns.push(Column::text("CGROUP", rows.iter().map(|row| known(&row.cgroup))));
    }
    columns
}

/// Returns the columns of stalls.
fn of_waits(rows: &[Row]) -> Vec<Column> {
    let mut columns = Vec::from(cells::stalls(rows.iter().map(|row| row.sums.waits.stalls)));
    let count = |head, of: fn(&StallStats) -> u64| {
        Column::numbers(head, rows.iter().map(|row| number::compact(of(&row.sums.waits))))
    };
    let longest = Column::numbers("LONGEST", rows.iter().map(|row| row.sums.waits.longest.to_string()));
    columns.push(longest.with_importance(6));
    columns.push(count("SCANNED", |waits| waits.scanned).with_importance(2));
    columns.push(count("FREED", |waits| waits.reclaimed).with_importance(1));
    columns
}

/// Returns the end of a process, or the common end of all processes of a group; `mixed` if their ends differ.
fn ended(process: &ProcessProfile) -> &'static str {
    match (process.ended, &process.group) {
        (None, _) => "",
        (Some(_), Some(group)) if group.ends.len() > 1 => "mixed",
        (Some(ImageEnd::Exit), _) => "exit",
        (Some(ImageEnd::OomKill), _) => "oom-kill",
        (Some(ImageEnd::Exec), _) => "exec",
    }
}

/// Returns the minimum size of the followed blocks: `≥64B`; `None` if the process is not demoted.
fn followed(process: &ProcessProfile) -> Option<String> {
    let demotion = &process.demotion;
    (!demotion.is_none()).then(|| format!("≥{}", demotion.min_size.compact()))
}

/// Returns the most specific description of a control group: pod and container, unit, or path.
fn place(cgroup: &Cgroup) -> String {
    let start = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let container = cgroup.container.as_ref();
    let id = container.map(|container| start(&container.id, ID_CHARACTERS));
    match (&cgroup.pod, id, container.and_then(|container| container.runtime), &cgroup.unit) {
        (Some(pod), Some(id), ..) => format!("pod {}/{id}", start(pod, UID_CHARACTERS)),
        (Some(pod), None, ..) => format!("pod {}", start(pod, UID_CHARACTERS)),
        (None, Some(id), runtime, _) => format!("{} {id}", runtime.unwrap_or("container")),
        (None, None, _, Some(unit)) => unit.clone(),
        (None, None, _, None) => cgroup.path.clone(),
    }
}

impl Sums {
    /// Returns the totals of a process. The rates refer to `duration`, the whole trace, even if the process ran only
    /// for a part of the trace.
    fn of(process: &ProcessProfile, sampled: SampledPart, duration: Duration) -> Self {
        let (blocks_a_second, bytes_a_second) = format::rates(process.total.alloc(), duration).unwrap_or_default();
        let memory = Memory { known: Some(KernelReported::of(process)), usage: process.total };
        Self { memory, sampled, blocks_a_second, bytes_a_second, waits: stalls::of(process) }
    }

    fn and(self, other: Self) -> Self {
        let mut waits = self.waits;
        waits.merge(&other.waits);
        let mut sampled = self.sampled;
        sampled += other.sampled;
        Self {
            waits,
            sampled,
            memory: self.memory.and(other.memory),
            blocks_a_second: self.blocks_a_second + other.blocks_a_second,
            bytes_a_second: self.bytes_a_second + other.bytes_a_second,
        }
    }
}

#[cfg(test)]
mod tests;
