//! Intervals as CSV (RFC 4180): a line for the machine, for each process and for each thread. `docs/json.md`
//! documents the columns.

use std::io;
use std::time::Duration;

use memtrace_model::{
    CounterSource, MachineValue, OtherThreads, ProcessInterval, ProcessValue, ThreadInterval, ThreadUsage,
    ThreadsInterval, UsageCounter,
};

use crate::escape::csv_text;

/// Names of the columns before the counters.
const LEADING: [&str; 14] = [
    "kind", "from_s", "to_s", "pid", "process", "tid", "start_ns", "name", "state", "source", "stale", "count",
    "started", "exited",
];

/// Writes the line of column names.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_header(out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(out);
    let counters = UsageCounter::ALL.map(UsageCounter::name);
    let of_process = ProcessValue::ALL.map(ProcessValue::name);
    let of_machine = MachineValue::ALL.map(MachineValue::name);
    let names = LEADING.iter().chain(&counters).chain(&of_process).chain(&of_machine);
    writer.write_record(names)?;
    writer.flush()
}

/// Writes the lines of an interval: the machine, then each process followed by its threads.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(interval: &ThreadsInterval, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(out);
    let lines = Lines { from: seconds(interval.span.start), to: seconds(interval.span.end) };
    writer.write_record(lines.machine(interval))?;
    for process in &interval.processes {
        writer.write_record(lines.process(process))?;
        for thread in &process.threads {
            writer.write_record(lines.thread(process, thread))?;
        }
        for (kind, others) in [("ended", &process.ended), ("others", &process.others)] {
            if *others != OtherThreads::default() {
                writer.write_record(lines.others(kind, process, others))?;
            }
        }
    }
    writer.flush()
}

/// Builder of the lines of an interval, with the cells that all lines share.
struct Lines {
    from: String,
    to: String,
}

impl Lines {
    fn machine(&self, interval: &ThreadsInterval) -> Vec<String> {
        let values = MachineValue::ALL.iter().map(|value| cell(interval.machine.get(*value)));
        let before = LEADING.len() - 3 + UsageCounter::COUNT + ProcessValue::COUNT;
        self.start("machine").chain(empty(before)).chain(values).collect()
    }

    fn process(&self, process: &ProcessInterval) -> Vec<String> {
        let start = [
            String::new(),
            process.start_ns.to_string(),
            String::new(),
            String::new(),
            process.source.source.name().to_owned(),
            process.source.is_stale.to_string(),
            String::new(),
            process.started.to_string(),
            process.has_exited.to_string(),
        ];
        let values = ProcessValue::ALL.iter().map(|value| cell(process.values.get(*value)));
        let line = self.start_of("process", process).chain(start);
        line.chain(counters(process, &process.usage)).chain(values).chain(empty(MachineValue::COUNT)).collect()
    }

    fn thread(&self, process: &ProcessInterval, thread: &ThreadInterval) -> Vec<String> {
        let start = [
            thread.thread.tid.0.to_string(),
            thread.thread.start_ns.to_string(),
            csv_text(thread.comm.raw()),
            thread.state.letter().to_string(),
            process.source.source.name().to_owned(),
            process.source.is_stale.to_string(),
            String::new(),
            String::new(),
            String::new(),
        ];
        let line = self.start_of("thread", process).chain(start).chain(counters(process, &thread.usage));
        line.chain(empty(ProcessValue::COUNT + MachineValue::COUNT)).collect()
    }

    fn others(&self, kind: &str, process: &ProcessInterval, others: &OtherThreads) -> Vec<String> {
        let source = [process.source.source.name().to_owned(), process.source.is_stale.to_string()];
        let line = self.start_of(kind, process).chain(empty(4)).chain(source);
        let line = line.chain([others.count.to_string()]).chain(empty(2)).chain(counters(process, &others.usage));
        line.chain(empty(ProcessValue::COUNT + MachineValue::COUNT)).collect()
    }

    fn start(&self, kind: &str) -> impl Iterator<Item = String> {
        [kind.to_owned(), self.from.clone(), self.to.clone()].into_iter()
    }

    fn start_of(&self, kind: &str, process: &ProcessInterval) -> impl Iterator<Item = String> {
        self.start(kind).chain([process.pid.to_string(), csv_text(process.comm.raw())])
    }
}

fn counters(process: &ProcessInterval, usage: &ThreadUsage) -> impl Iterator<Item = String> {
    let (source, usage): (CounterSource, ThreadUsage) = (process.source.source, *usage);
    UsageCounter::ALL.into_iter().map(move |counter| cell(source.counts(counter).then(|| usage.get(counter))))
}

fn cell(value: Option<u64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn empty(cells: usize) -> impl Iterator<Item = String> {
    std::iter::repeat_n(String::new(), cells)
}

/// Returns a time in seconds with nine decimals.
fn seconds(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}
