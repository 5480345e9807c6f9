//! A simulated monitor, and the rows that its recording must have.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    Comm, CounterSource, ImageId, MachineUsage, MachineValue, OtherThreads, Pid, ProcessInterval, ProcessValue,
    ProcessValues, SourceState, TaskState, ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsEvent, ThreadsEventKind,
    ThreadsInterval, Tid, UsageCounter,
};

use crate::*;

/// Time from the boot of the machine to the start of the monitor.
pub(super) const SINCE_BOOT: Duration = Duration::from_secs(1000);

/// Process with the long-running threads. It is older than the monitor.
pub(super) const SERVER: Pid = Pid(100);

const SECOND: u64 = 1_000_000_000;

/// Returns a hash of three numbers.
fn hash(numbers: [u64; 3]) -> u64 {
    let mix = |state: u64, number: u64| (state ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    numbers.into_iter().fold(7, mix) >> 7
}

fn usage(thread: u64, second: u64) -> ThreadUsage {
    let mut usage = ThreadUsage::default();
    if hash([thread, second, 0]).is_multiple_of(4) {
        return usage;
    }
    for (index, counter) in (1..).zip(UsageCounter::ALL) {
        let range = if counter.name().ends_with("_ns") { 100_000_000 } else { 50 };
        usage.set(counter, hash([thread, second, index]) % range);
    }
    usage
}

fn thread(pid: Pid, tid: u64, start_ns: u64, second: u64) -> ThreadInterval {
    let state = [TaskState::Running, TaskState::Sleeping, TaskState::DiskSleep][(hash([tid, second, 99]) % 3) as usize];
    let name = format!("t{tid}.{}", second / 40);
    let thread = ThreadIdentity { pid, tid: Tid(tid as u32), start_ns };
    ThreadInterval { thread, comm: Comm::from(name), state, usage: usage(tid ^ start_ns, second) }
}

fn process(pid: Pid, start_ns: u64, second: u64, threads: Vec<ThreadInterval>) -> ProcessInterval {
    let mut values = ProcessValues::default();
    values.set(ProcessValue::RssAnon, Some(4096 * (second / 3)));
    values.set(ProcessValue::Threads, Some(threads.len() as u64));
    let sum = threads.iter().map(|thread| thread.usage).sum();
    ProcessInterval {
        pid,
        start_ns,
        comm: Comm::from(format!("p{}", pid.0)),
        source: SourceState { source: CounterSource::Bpf, is_stale: second % 10 == 3 },
        usage: sum,
        threads,
        ended: OtherThreads::default(),
        others: OtherThreads::default(),
        started: 0,
        values,
        has_exited: false,
    }
}

/// Returns the end of the short thread that starts in `second`, as a number of seconds.
const fn end_of_short(second: u64) -> u64 {
    second + second * 7 % 12
}

/// An interval of one second: a process with `threads` long-running threads and some short ones, and short
/// processes.
pub(super) fn monitored(second: u64, threads: u64) -> ThreadsInterval {
    let boot = SINCE_BOOT.as_secs() + second;
    let mut rows: Vec<_> = (0..threads).map(|tid| thread(SERVER, 101 + tid, 5, second)).collect();
    // A thread starts in each second. Thread IDs are reused.
    let start_ns = |start: u64| (SINCE_BOOT.as_secs() + start) * SECOND + SECOND / 2;
    let short = |start: u64| thread(SERVER, 50_000 + start % 40, start_ns(start), second);
    let recent = second.saturating_sub(12)..=second;
    rows.extend(recent.clone().filter(|start| end_of_short(*start) > second).map(short));
    let mut server = process(SERVER, 5, second, rows);
    for ended in recent.filter(|start| end_of_short(*start) == second).map(short) {
        server.ended.count += 1;
        server.ended.usage = server.ended.usage.plus(ended.usage);
    }
    server.started = 1;
    server.usage = server.usage.plus(server.ended.usage);
    let mut processes = vec![server];
    // Every fourth second, a process starts and runs for seven seconds.
    for start in (second.saturating_sub(7)..=second).filter(|start| start.is_multiple_of(4)) {
        let pid = Pid(2000 + (start / 4 % 5) as u32);
        let start_ns = (SINCE_BOOT.as_secs() + start) * SECOND + 7;
        let mut short = process(pid, start_ns, second, vec![thread(pid, pid.0.into(), start_ns, second)]);
        if second == start + 7 {
            short.has_exited = true;
            short.ended = OtherThreads { count: 1, usage: short.usage };
            short.threads.clear();
        }
        processes.push(short);
    }
    processes.sort_by_key(|process| (process.pid, process.start_ns));
    let mut machine = MachineUsage::default();
    machine.set(MachineValue::UserTime, Some(hash([boot, 0, 1]) % 3));
    machine.set(MachineValue::MemoryPressure, Some(second));
    machine.set(MachineValue::MemoryAvailable, Some((1 << 30) + second / 5));
    let end = Duration::from_secs(second + 1);
    let event = |kind| ThreadsEvent { at: end, kind };
    let mut events = Vec::new();
    events.extend((second % 20 == 9).then(|| event(ThreadsEventKind::Trigger(String::from("rss > 1")))));
    events.extend((second % 50 == 49).then(|| event(ThreadsEventKind::Mark(String::from("begin")))));
    ThreadsInterval { span: Duration::from_secs(second)..end, processes, machine, events, ..ThreadsInterval::default() }
}

pub(super) fn recorder() -> ThreadRecorder {
    let mut machine = MachineUsage::default();
    machine.set(MachineValue::UserTime, Some(1000));
    machine.set(MachineValue::MemoryPressure, Some(500));
    ThreadRecorder::new(SINCE_BOOT, machine)
}

/// Rows by end of their interval, computed without the database.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) threads: BTreeMap<(Duration, ThreadIdentity), (TaskState, ThreadUsage)>,
    pub(super) processes: BTreeMap<(Duration, ImageId), ThreadUsage>,
    /// Numbers of ended and started threads.
    pub(super) counts: BTreeMap<(Duration, ImageId), (u64, u64)>,
    pub(super) machine: BTreeMap<Duration, [Option<u64>; 2]>,
    /// Start of the first interval and end of the last interval with each thread.
    lives: BTreeMap<ThreadIdentity, (Duration, Duration)>,
}

impl Model {
    /// Returns the rows that a recording of `all` with these boundaries must have.
    pub(super) fn of(all: &[ThreadsInterval], boundaries: &[Duration]) -> Self {
        let mut model = Self::default();
        let mut states: BTreeMap<ThreadIdentity, TaskState> = BTreeMap::new();
        let mut starts: BTreeMap<Pid, Vec<u64>> = BTreeMap::new();
        for interval in all {
            let Some(&at) = boundaries.iter().find(|at| **at >= interval.span.end) else { break };
            for process in &interval.processes {
                let known = starts.entry(process.pid).or_default();
                if !known.contains(&process.start_ns) {
                    known.push(process.start_ns);
                }
                let ordinal = known.iter().position(|start| *start == process.start_ns).unwrap() as u32;
                let image = ImageId { pid: process.pid, ordinal };
                let sum = model.processes.entry((at, image)).or_default();
                *sum = sum.plus(process.usage);
                let counts = model.counts.entry((at, image)).or_default();
                *counts = (counts.0 + process.ended_threads(), counts.1 + process.started);
                for row in &process.threads {
                    let life = model.lives.entry(row.thread).or_insert((interval.span.start, interval.span.end));
                    life.1 = interval.span.end;
                    if states.insert(row.thread, row.state) != Some(row.state) || row.usage != ThreadUsage::default() {
                        let sum = model.threads.entry((at, row.thread)).or_default();
                        *sum = (row.state, sum.1.plus(row.usage));
                    }
                }
            }
            let machine = model.machine.entry(at).or_insert([Some(0), Some(0)]);
            let added = [MachineValue::UserTime, MachineValue::MemoryPressure].map(|value| interval.machine.get(value));
            *machine = [0, 1].map(|index| machine[index].zip(added[index]).map(|(sum, more)| sum + more));
        }
        model
    }

    /// Returns true if the thread has started and ended between two of the boundaries.
    fn is_short(&self, thread: ThreadIdentity, boundaries: &[Duration]) -> bool {
        let (first, last) = self.lives[&thread];
        let starts = [Duration::ZERO].into_iter().chain(boundaries.iter().copied());
        starts.zip(boundaries).any(|(start, end)| start <= first && last < *end)
    }
}

/// Compares everything in a recording with the intervals of the monitor. Returns the number of threads.
pub(super) fn check(recording: &Recording, all: &[ThreadsInterval]) -> usize {
    let boundaries: Vec<_> = recording.intervals().iter().map(|interval| interval.span.end).collect();
    let model = Model::of(all, &boundaries);
    let (start, end) = (Boundary::START, recording.end());
    let threads = recording.recorded_threads().unwrap();
    let identity = |thread: &RecordedThread| {
        let start = thread.start_ns + SINCE_BOOT.as_nanos() as i64;
        ThreadIdentity { pid: thread.image.pid, tid: thread.tid, start_ns: start.cast_unsigned() }
    };
    let known: BTreeMap<_, _> = threads.iter().map(|thread| (thread.number, identity(thread))).collect();
    let mut rows: BTreeMap<_, _> = BTreeMap::new();
    for ThreadRow { at, usage } in thread_rows(recording, start, end) {
        let earlier = rows.insert((at.at(), known[&usage.thread]), (usage.state, usage.usage));
        assert_eq!(earlier, None);
    }
    let is_known = |thread: &ThreadIdentity| known.values().any(|known| known == thread);
    let mut expected = model.threads.clone();
    expected.retain(|(_, thread), _| is_known(thread) || !model.is_short(*thread, &boundaries));
    assert_eq!(rows, expected);

    let mut processes = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for ProcessRow { at, usage } in recording.process_rows(start, end).unwrap() {
        processes.insert((at.at(), usage.image), usage.usage);
        counts.insert((at.at(), usage.image), (usage.ended_threads, usage.started_threads));
        assert_eq!(usage.source.source, CounterSource::Bpf);
    }
    let mut expected = model.processes.clone();
    expected.retain(|key, usage| processes.contains_key(key) || *usage != ThreadUsage::default());
    assert_eq!(processes, expected);
    assert!(counts.iter().all(|(key, counts)| model.counts[key] == *counts));

    let machine = recording.machine_usage(end).unwrap();
    let machine: BTreeMap<_, _> = machine
        .into_iter()
        .map(|(at, usage)| {
            (at.at(), [MachineValue::UserTime, MachineValue::MemoryPressure].map(|value| usage.get(value)))
        })
        .collect();
    assert_eq!(machine, model.machine);
    threads.len()
}

/// Returns the usage of threads between two boundaries, by time and number.
pub(super) fn thread_rows(recording: &Recording, from: Boundary, to: Boundary) -> Vec<ThreadRow> {
    let mut rows = Vec::new();
    recording.each_thread_row(from, to, |row| rows.push(row)).unwrap();
    rows
}
