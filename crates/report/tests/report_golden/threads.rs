//! Tests of the formats of the thread monitor.

use std::io;
use std::time::Duration;

use memtrace_model::{
    Comm, CounterSource, MachineUsage, MachineValue, OtherThreads, Pid, ProcessInterval, ProcessValue, ProcessValues,
    SourceState, TaskState, ThreadColumn, ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsEvent, ThreadsEventKind,
    ThreadsInterval, Tid, UsageCounter,
};
use memtrace_report::{
    ThreadHistory, ThreadTableOptions, ThreadTimeline, TimelineBuilder, write_thread_table, write_thread_timeline,
    write_threads_csv, write_threads_csv_header, write_threads_json,
};

use super::assert_golden;

/// Start of the monitor, in nanoseconds since the boot of the machine.
pub(crate) const START: u64 = 5_000_000_000_000;

/// A thread of a process, with its ID, name and state, allocated and freed KiB, and milliseconds of processor time.
type Row = (u32, &'static str, TaskState, [u64; 2], u64);

fn thread(pid: u32, &(tid, name, state, [alloc, free], time): &Row) -> ThreadInterval {
    let usage = ThreadUsage::of(&[
        (UsageCounter::AllocBytes, alloc << 10),
        (UsageCounter::AllocCount, alloc * 3),
        (UsageCounter::FreeBytes, free << 10),
        (UsageCounter::FreeCount, free * 3),
        (UsageCounter::UserTime, time * 900_000),
        (UsageCounter::SystemTime, time * 100_000),
        (UsageCounter::RunDelay, time * 10_000),
        (UsageCounter::VoluntarySwitches, time),
        (UsageCounter::MinorFaults, alloc / 4),
    ]);
    let thread = ThreadIdentity { pid: Pid(pid), tid: Tid(tid), start_ns: START + u64::from(tid) * 1_000_000 };
    ThreadInterval { thread, comm: Comm::from(name), state, usage }
}

fn process(pid: u32, name: &str, source: CounterSource, threads: &[Row], rss: u64) -> ProcessInterval {
    let threads: Vec<_> = threads.iter().map(|row| thread(pid, row)).collect();
    let mut values = ProcessValues::default();
    let numbers = [rss << 20, 12 << 20, 1 << 20, 0, 38, threads.len() as u64];
    ProcessValue::ALL.into_iter().zip(numbers).for_each(|(value, number)| values.set(value, Some(number)));
    ProcessInterval {
        pid: Pid(pid),
        start_ns: START - 60_000_000_000,
        comm: Comm::from(name),
        source: SourceState { source, is_stale: false },
        usage: threads.iter().map(|thread| thread.usage).sum(),
        threads,
        ended: OtherThreads::default(),
        others: OtherThreads::default(),
        started: 0,
        values,
        has_exited: false,
    }
}

/// Returns four intervals of a second, with a thread that leaks, one that frees, one that ends, and a process without
/// heap counters.
pub(crate) fn intervals() -> Vec<ThreadsInterval> {
    let interval = |at: u64| {
        let mut rows = vec![
            (812, "redis-server", TaskState::Running, [900 + 100 * at, 300], 610),
            (815, "bio_lazy_free", TaskState::Sleeping, [0, 200 * at], 95),
        ];
        rows.extend((at < 2).then_some((900, "a,\"b\"\u{1b}<c>&", TaskState::DiskSleep, [80, 16], 5)));
        let mut redis = process(812, "redis-server", CounterSource::Bpf, &rows, 200 + 20 * at);
        if at == 2 {
            let last = thread(812, &(900, "", TaskState::Dead, [8, 0], 1));
            redis.ended = OtherThreads { count: 1, usage: last.usage };
            redis.usage = redis.usage.plus(last.usage);
        }
        let cron = process(950, "cron", CounterSource::None, &[(950, "cron", TaskState::Sleeping, [0, 0], 2)], 3);
        let mut machine = MachineUsage::default();
        let numbers = [650, 75, 3_200, 70, 5, 0, 8192, 12, 0, 3];
        for (value, number) in MachineValue::ALL.into_iter().zip(numbers) {
            let is_time = value.name().ends_with("_ns");
            machine.set(value, Some(if is_time { number * 1_000_000 } else { number }));
        }
        machine.set(MachineValue::MemoryAvailable, Some(6 << 30));
        machine.set(MachineValue::MemoryTotal, Some(16 << 30));
        let mark =
            ThreadsEvent { at: Duration::from_millis(2250), kind: ThreadsEventKind::Mark(String::from("flush <all>")) };
        ThreadsInterval {
            span: Duration::from_secs(at)..Duration::from_secs(at + 1),
            processes: vec![redis, cron],
            machine,
            events: if at == 2 { vec![mark] } else { Vec::new() },
            ..ThreadsInterval::default()
        }
    };
    (0..4).map(interval).collect()
}

fn timeline() -> ThreadTimeline {
    let mut builder = TimelineBuilder::new(String::from("Threads of redis-server (812), cron (950)"), Some(START));
    intervals().iter().for_each(|interval| builder.add(interval));
    builder.finish()
}

fn table(out: &mut dyn io::Write) -> io::Result<()> {
    let mut history = ThreadHistory::new(ThreadColumn::Alloc);
    let options = ThreadTableOptions { sort: ThreadColumn::Alloc, rows: 3, width: Some(120) };
    intervals().iter().try_for_each(|interval| {
        history.add(interval);
        write_thread_table(interval, &history, &options, out)
    })
}

fn csv(out: &mut dyn io::Write) -> io::Result<()> {
    write_threads_csv_header(out)?;
    intervals().iter().try_for_each(|interval| write_threads_csv(interval, out))
}

fn json(out: &mut dyn io::Write) -> io::Result<()> {
    intervals().iter().try_for_each(|interval| write_threads_json(interval, out))
}

fn picture(out: &mut dyn io::Write) -> io::Result<()> {
    write_thread_timeline(&timeline(), out)
}

fn written(write: impl Fn(&mut dyn io::Write) -> io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("reports are UTF-8")
}

#[test]
fn the_table_of_threads_is_as_it_was() {
    assert_golden("threads.txt", &written(table));
}

#[test]
fn the_csv_of_threads_is_as_it_was() {
    assert_golden("threads.csv", &written(csv));
}

#[test]
fn the_json_of_threads_is_as_it_was() {
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert_golden("threads.json", &written(json).replace(&version, "\"version\":\"VERSION\""));
}

#[test]
fn the_picture_of_threads_is_as_it_was() {
    assert_golden("threads.svg", &written(picture));
}

#[test]
fn a_full_disk_is_an_error_of_every_writer() {
    struct Full;
    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for write in [table, csv, json, picture] {
        assert_eq!(write(&mut Full).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
