//! Size of recordings with many monitored threads.

use std::time::{Duration, Instant};

use harness::Scratch;
use memtrace_model::{Bytes, Comm, SourceState, TaskState, ThreadUsage, Tid, UsageCounter};

use super::empty_store;
use super::sample_intervals::image;
use super::thread_model::thread_rows;
use crate::*;

const THREADS: u64 = 500;

/// Usage of a busy thread in a second: about a mebibyte in a thousand blocks, and half of a processor.
fn usage(thread: u64, second: u64) -> ThreadUsage {
    let noise = (thread * 7919 + second * 104_729) % 1009;
    let values = [
        1_000_000 + 97 * noise,
        1000 + noise,
        1_000_000 + 89 * noise,
        900 + noise,
        400_000_000 + 99_991 * noise,
        50_000_000 + 9973 * noise,
        1_000_000 + 997 * noise,
        noise,
        noise / 10,
        0,
        4096 * (noise % 7),
        noise / 3,
        0,
    ];
    let values: Vec<_> = UsageCounter::ALL.into_iter().zip(values).collect();
    ThreadUsage::of(&values)
}

/// Returns an interval of one second. All threads are busy in it.
fn busy(second: u64) -> Interval {
    let thread = |number: u64| RecordedThread {
        number: ThreadNumber(number),
        image: image(1),
        tid: Tid(number as u32),
        name: Comm::from("worker"),
        start_ns: -1,
        end: None,
    };
    let threads: Vec<_> = (1..=THREADS)
        .map(|number| RecordedThreadUsage {
            thread: ThreadNumber(number),
            state: TaskState::Sleeping,
            usage: usage(number, second),
        })
        .collect();
    let process = RecordedProcessUsage {
        image: image(1),
        usage: threads.iter().map(|row| row.usage).sum(),
        ended_threads: 0,
        started_threads: 0,
        other_threads: 0,
        source: SourceState::default(),
    };
    Interval {
        span: Duration::from_secs(second)..Duration::from_secs(second + 1),
        monitored: if second == 0 { (1..=THREADS).map(thread).collect() } else { Vec::new() },
        threads,
        process_usage: vec![process],
        ..Interval::default()
    }
}

#[test]
fn many_threads_fit_into_the_size_limit_with_exact_sums() {
    const SECONDS: u64 = 400;
    const LIMIT: Bytes = Bytes(2 << 20);
    let directory = Scratch::in_memory();
    let path = directory.path("run.memtrace");
    let mut store = empty_store(&path, LIMIT);
    let (mut writing, mut merging, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for second in 0..SECONDS {
        let interval = busy(second);
        let start = Instant::now();
        store.write(&interval, 1, None).unwrap();
        writing += start.elapsed();
        let start = Instant::now();
        loop {
            let step = Instant::now();
            if !store.compact(false).unwrap() {
                break;
            }
            longest = longest.max(step.elapsed());
        }
        merging += start.elapsed();
    }
    store.finish().unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size <= LIMIT.0);
    let recording = Recording::open(&path).unwrap();
    let (mut threads, mut process, mut second) =
        (vec![ThreadUsage::default(); THREADS as usize], ThreadUsage::default(), 0);
    let rows = thread_rows(&recording, Boundary::START, recording.end());
    println!(
        "{} intervals, {} rows of {} bytes, {:?} to write, {:?} to merge, longest step {longest:?}",
        recording.intervals().len(),
        rows.len(),
        size / rows.len() as u64,
        writing / SECONDS as u32,
        merging / SECONDS as u32
    );
    let lengths = |interval: &IntervalRow| (interval.span.end - interval.span.start).as_secs();
    let mut spans: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
    recording.intervals().iter().for_each(|interval| *spans.entry(lengths(interval)).or_default() += 1);
    println!("number of intervals by length in seconds: {spans:?}");
    for ProcessRow { at, usage: row } in recording.process_rows(Boundary::START, recording.end()).unwrap() {
        while Duration::from_secs(second) < at.at() {
            for (sum, number) in threads.iter_mut().zip(1..) {
                *sum = sum.plus(usage(number, second));
            }
            second += 1;
        }
        process = process.plus(row.usage);
        assert_eq!(threads.iter().copied().sum::<ThreadUsage>(), process);
        let mut sums = vec![ThreadUsage::default(); THREADS as usize];
        for row in rows.iter().take_while(|row| row.at <= at) {
            let sum = &mut sums[row.usage.thread.0 as usize - 1];
            *sum = sum.plus(row.usage.usage);
        }
        assert_eq!(sums, threads, "at {second} s");
    }
    assert_eq!(second, SECONDS);
}
