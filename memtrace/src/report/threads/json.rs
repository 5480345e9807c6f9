//! Intervals as JSON, one line each. `docs/json.md` documents the fields.

use std::collections::BTreeMap;
use std::io;

use serde::{Serialize, Serializer};

use crate::model::{
    MachineValue, MonitorEvent, MonitorEventKind, MonitorInterval, OtherThreads, ProcessInterval, ProcessValue,
    ThreadInterval, ThreadUsage, UsageCounter,
};
use crate::report::json_lines::SingleLine;
use crate::report::tool::Tool;

/// Version of the fields.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a> {
    tool: Tool,
    kind: &'static str,
    schema_version: u32,
    from_s: f64,
    to_s: f64,
    machine: Numbers,
    processes: Vec<Process<'a>>,
    events: Vec<Event<'a>>,
    losses: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    start_ns: u64,
    name: &'a str,
    source: &'static str,
    stale: bool,
    started: u64,
    exited: bool,
    values: Numbers,
    usage: Numbers,
    threads: Vec<Thread<'a>>,
    ended: Others,
    others: Others,
}

#[derive(Serialize)]
struct Thread<'a> {
    tid: u32,
    start_ns: u64,
    name: &'a str,
    state: char,
    usage: Numbers,
}

#[derive(Serialize)]
struct Others {
    count: u64,
    usage: Numbers,
}

#[derive(Serialize)]
struct Event<'a> {
    at_s: f64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Names of numbers with their values; `None` for those that are not known.
struct Numbers(Vec<(&'static str, Option<u64>)>);

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// Writes an interval as an object in a line of its own.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(interval: &MonitorInterval, mut out: &mut dyn io::Write) -> io::Result<()> {
    let losses = interval.losses.iter().filter(|(_, count)| *count > 0);
    let line = Line {
        tool: Tool::THIS,
        kind: "threads",
        schema_version: SCHEMA_VERSION,
        from_s: interval.span.start.as_secs_f64(),
        to_s: interval.span.end.as_secs_f64(),
        machine: Numbers(MachineValue::ALL.map(|value| (value.name(), interval.machine.get(value))).into()),
        processes: interval.processes.iter().map(process).collect(),
        events: interval.events.iter().map(event).collect(),
        losses: losses.map(|(reason, count)| (reason.name(), count)).collect(),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, SingleLine);
    line.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

fn process(process: &ProcessInterval) -> Process<'_> {
    let others = |others: &OtherThreads| Others { count: others.count, usage: usage(process, &others.usage) };
    Process {
        pid: process.pid.0,
        start_ns: process.start_ns,
        name: process.comm.raw(),
        source: process.source.source.name(),
        stale: process.source.is_stale,
        started: process.started,
        exited: process.has_exited,
        values: Numbers(ProcessValue::ALL.map(|value| (value.name(), process.values.get(value))).into()),
        usage: usage(process, &process.usage),
        threads: process.threads.iter().map(|of| thread(process, of)).collect(),
        ended: others(&process.ended),
        others: others(&process.others),
    }
}

fn thread<'a>(process: &ProcessInterval, thread: &'a ThreadInterval) -> Thread<'a> {
    Thread {
        tid: thread.thread.tid.0,
        start_ns: thread.thread.start_ns,
        name: thread.comm.raw(),
        state: thread.state.letter(),
        usage: usage(process, &thread.usage),
    }
}

fn usage(process: &ProcessInterval, usage: &ThreadUsage) -> Numbers {
    let value = |counter| process.source.source.counts(counter).then(|| usage.get(counter));
    Numbers(UsageCounter::ALL.map(|counter| (counter.name(), value(counter))).into())
}

fn event(event: &MonitorEvent) -> Event<'_> {
    let (kind, pid, text) = match &event.kind {
        MonitorEventKind::OomKill(pid) => ("oom_kill", Some(pid.0), None),
        MonitorEventKind::Exit(pid) => ("exit", Some(pid.0), None),
        MonitorEventKind::Mark(text) => ("mark", None, Some(text.as_str())),
        MonitorEventKind::Trigger(text) => ("trigger", None, Some(text.as_str())),
    };
    Event { at_s: event.at.as_secs_f64(), kind, pid, text }
}
