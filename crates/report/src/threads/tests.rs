//! Tests of the formats of the thread monitor.

use std::time::Duration;

use memtrace_model::{
    Comm, CounterSource, LossReason, MachineUsage, MachineValue, OtherThreads, Pid, ProcessInterval, ProcessValue,
    ProcessValues, SourceState, TaskState, ThreadColumn, ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsEvent,
    ThreadsEventKind, ThreadsInterval, Tid, UsageCounter,
};

use super::*;

mod csv;
mod json;
mod picture;
mod text;

/// Name with control characters, separators of CSV, and special characters of XML.
const HOSTILE: &str = "=a\u{1b}[2J,\"b\"\n<c>&'\u{202e}";

pub(super) fn thread(tid: u32, name: &str, values: &[(UsageCounter, u64)]) -> ThreadInterval {
    ThreadInterval {
        thread: ThreadIdentity { pid: Pid(7), tid: Tid(tid), start_ns: 1_000_000_007 * u64::from(tid) },
        comm: Comm::from(name),
        state: TaskState::Sleeping,
        usage: ThreadUsage::of(values),
    }
}

/// Returns a process that has the sum of the usage of `threads`.
pub(super) fn process(source: CounterSource, threads: Vec<ThreadInterval>) -> ProcessInterval {
    ProcessInterval {
        pid: Pid(7),
        start_ns: 7_000_000_049,
        comm: Comm::from("server"),
        source: SourceState { source, is_stale: false },
        usage: threads.iter().map(|thread| thread.usage).sum(),
        threads,
        ended: OtherThreads::default(),
        others: OtherThreads::default(),
        started: 0,
        values: ProcessValues::default(),
        has_exited: false,
    }
}

/// Returns usage with a value for each counter, multiplied by `times`.
fn usage(times: u64) -> ThreadUsage {
    const MILLION: u64 = 1_000_000;
    let values = [
        3 << 20,
        40_000,
        1 << 20,
        8_000,
        600 * MILLION,
        200 * MILLION,
        20 * MILLION,
        500,
        13,
        64 << 10,
        5 << 20,
        1_200,
        2,
    ];
    let mut usage = ThreadUsage::default();
    UsageCounter::ALL.iter().zip(values).for_each(|(counter, value)| usage.set(*counter, value * times));
    usage
}

/// Returns an interval of two seconds with two processes. One has heap counters by BPF and a thread with a hostile
/// name, the other has heap counters by jemalloc.
fn interval() -> ThreadsInterval {
    let busy = ThreadInterval { state: TaskState::Running, usage: usage(2), ..thread(8, "worker-1", &[]) };
    let freeing = thread(9, HOSTILE, &[(UsageCounter::FreeBytes, 5000), (UsageCounter::FreeCount, 3)]);
    let mut server = process(CounterSource::Bpf, vec![busy, thread(7, "server", &[]), freeing]);
    server.ended = OtherThreads { count: 2, usage: usage(1) };
    server.others = OtherThreads { count: 1200, usage: usage(3) };
    server.usage = server.usage.plus(server.ended.usage).plus(server.others.usage);
    server.started = 5;
    for (value, number) in ProcessValue::ALL.into_iter().zip([300 << 20, 20 << 20, 1 << 20, 0, 64, 1203]) {
        server.values.set(value, Some(number));
    }
    let mut store = process(CounterSource::Jemalloc, vec![ThreadInterval { usage: usage(1), ..thread(21, "", &[]) }]);
    (store.pid, store.comm, store.source.is_stale) = (Pid(20), Comm::from("store"), true);
    store.threads[0].thread.pid = Pid(20);
    let mut machine = MachineUsage::default();
    let values = [2_000, 500, 5_000, 400, 100, 4 << 20, 20 << 20, 30, 0, 1, 12 << 30, 32 << 30];
    for (value, number) in MachineValue::ALL.into_iter().zip(values) {
        let is_time = value.name().ends_with("_ns");
        machine.set(value, Some(number * if is_time { 1_000_000 } else { 1 }));
    }
    let event = |at, kind| ThreadsEvent { at: Duration::from_millis(at), kind };
    let mut interval = ThreadsInterval {
        span: Duration::new(88, 1)..Duration::new(90, 1),
        processes: vec![server, store],
        machine,
        events: vec![
            event(88_500, ThreadsEventKind::Mark(String::from(HOSTILE))),
            event(89_000, ThreadsEventKind::OomKill(Pid(20))),
        ],
        ..ThreadsInterval::default()
    };
    interval.losses.add(LossReason::LedgerFull, 2);
    interval
}

/// Returns the output of a writer.
fn written(write: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}
