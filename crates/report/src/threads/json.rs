//! Intervals as JSON, one line each.

use std::io;

use memtrace_json::{self as schema, SCHEMA_VERSION};
use memtrace_model::{
    MachineValue, OtherThreads, ProcessInterval, ProcessValue, ThreadInterval, ThreadUsage, ThreadsEvent,
    ThreadsEventKind, ThreadsInterval, UsageCounter,
};

use crate::json::{TOOL, in_order, occurred};
use crate::json_lines;

/// Writes an interval as a JSON object in a line of its own.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(interval: &ThreadsInterval, out: &mut dyn io::Write) -> io::Result<()> {
    let machine = MachineValue::ALL.map(|value| (value.name(), interval.machine.get(value)));
    let line = schema::Interval {
        tool: TOOL,
        kind: "threads".into(),
        schema_version: SCHEMA_VERSION,
        from_s: interval.span.start.as_secs_f64(),
        to_s: interval.span.end.as_secs_f64(),
        machine: schema::MachineUsage(in_order(machine)),
        processes: interval.processes.iter().map(process).collect(),
        events: interval.events.iter().map(event).collect(),
        losses: occurred(&interval.losses),
    };
    json_lines::write_line(&line, out)
}

fn process(process: &ProcessInterval) -> schema::MonitoredProcess<'_> {
    let others =
        |others: &OtherThreads| schema::OtherThreads { count: others.count, usage: usage(process, &others.usage) };
    schema::MonitoredProcess {
        pid: process.pid.0,
        start_ns: process.start_ns,
        name: process.comm.raw().into(),
        source: process.source.source.name().into(),
        stale: process.source.is_stale,
        started: process.started,
        exited: process.has_exited,
        values: in_order(ProcessValue::ALL.map(|value| (value.name(), process.values.get(value)))),
        usage: usage(process, &process.usage),
        threads: process.threads.iter().map(|of| thread(process, of)).collect(),
        ended: others(&process.ended),
        others: others(&process.others),
    }
}

fn thread<'a>(process: &ProcessInterval, thread: &'a ThreadInterval) -> schema::MonitoredThread<'a> {
    schema::MonitoredThread {
        tid: thread.thread.tid.0,
        start_ns: thread.thread.start_ns,
        name: thread.comm.raw().into(),
        state: thread.state.letter(),
        ended: thread.has_ended(),
        usage: usage(process, &thread.usage),
    }
}

fn usage(process: &ProcessInterval, usage: &ThreadUsage) -> schema::ThreadUsage<'static> {
    let value = |counter| process.source.source.counts(counter).then(|| usage.get(counter));
    schema::ThreadUsage(in_order(UsageCounter::ALL.map(|counter| (counter.name(), value(counter)))))
}

fn event(event: &ThreadsEvent) -> schema::IntervalEvent<'_> {
    let (kind, pid, text) = match &event.kind {
        ThreadsEventKind::OomKill(pid) => ("oom_kill", Some(pid.0), None),
        ThreadsEventKind::Exit(pid) => ("exit", Some(pid.0), None),
        ThreadsEventKind::Mark(text) => ("mark", None, Some(text.into())),
        ThreadsEventKind::Trigger(text) => ("trigger", None, Some(text.into())),
    };
    schema::IntervalEvent { at_s: event.at.as_secs_f64(), kind: kind.into(), pid, text }
}
