//! Writers that are killed at any moment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::Scratch;
use memtrace_model::Bytes;

use super::sample_intervals::{allocated, header, second};
use super::{image_merges, sum, thread_model};
use crate::*;

/// Environment variable with the path of the file that the child process writes.
const FILE: &str = "MEMTRACE_TEST_RECORDING";

/// Environment variable with the number of stacks that change in each interval.
const STACKS: &str = "MEMTRACE_TEST_STACKS";

/// Environment variable with the number of short processes in each interval.
const PROCESSES: &str = "MEMTRACE_TEST_PROCESSES";

/// Environment variable with the number of monitored threads that run all the time.
const THREADS: &str = "MEMTRACE_TEST_THREADS";

/// The interval of [`second`], with changes of `stacks` further stacks.
fn interval(at: u64, stacks: u32) -> Interval {
    let mut interval = second(at);
    interval.changes.extend((1000..1000 + stacks).map(|path| allocated(1, path, at + 1)));
    interval
}

/// Runs in a child process of [`killed_writer_loses_the_last_interval_only`]: writes intervals to a file, and the
/// number of stored intervals to standard output. Without the environment variable [`FILE`], the test does nothing.
#[test]
fn child_process_that_writes() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let number = |name| std::env::var(name).ok().map(|number| number.parse().unwrap());
    let (stacks, processes, threads) = (number(STACKS).unwrap_or(0), number(PROCESSES), number(THREADS));
    let mut recorder = thread_model::recorder();
    // Small enough that old intervals are merged.
    let settings = Settings { size_limit: Bytes((1 << 20) + (1 << 16)), queue: 4, ..Settings::default() };
    let writer = Writer::create(path.as_ref(), &header(), settings).unwrap();
    for at in 0.. {
        writer.push(match (processes, threads) {
            (Some(processes), _) => image_merges::second(at, processes),
            (None, Some(threads)) => recorder.convert(&thread_model::monitored(at, threads)),
            (None, None) => interval(at, stacks as u32),
        });
        while writer.status().intervals <= at {
            std::thread::yield_now();
        }
        println!("stored {}", at + 1);
        std::io::stdout().flush().unwrap();
    }
}

/// Starts [`child_process_that_writes`], waits until it has stored `enough` intervals, waits for the time `after`, and
/// kills it. Returns the number of intervals that the process reported as stored.
fn run_and_kill(path: &Path, variable: (&str, u64), enough: u64, after: Duration) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "file::tests::kill::child_process_that_writes", "--nocapture"])
        .env(FILE, path)
        .env(variable.0, variable.1.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stored = 0;
    let mut read_until = |least: u64| {
        while stored < least {
            let Some(line) = lines.next() else { break };
            let number = line.unwrap().strip_prefix("stored ").and_then(|number| number.parse().ok());
            stored = number.unwrap_or(stored);
        }
        stored
    };
    read_until(enough);
    // A busy loop, because the process must be killed within the next interval.
    let start = Instant::now();
    while start.elapsed() < after {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    read_until(u64::MAX) as usize
}

/// Returns a pseudo-random generator. Each number is below the argument of the call.
fn random() -> impl FnMut(u64) -> u64 {
    let mut state = 1_u64;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn killed_writer_loses_the_last_interval_only() {
    let directory = Scratch::in_memory();
    let mut random = random();
    let (mut most, mut merged) = (0, 0);
    for run in 0..200 {
        let path = directory.path("run.memtrace");
        let stacks = if run % 20 == 0 { 1000 } else { 0 };
        let enough = 1 + random(20) + if stacks > 0 { 50 } else { 0 };
        let stored = run_and_kill(&path, (STACKS, stacks), enough, Duration::from_micros(random(3000)));
        let recording = Recording::open(&path).unwrap();
        let end = recording.end();
        let seconds = end.at().as_secs() as usize;
        let all: Vec<_> = (0..seconds as u64).map(|at| interval(at, stacks as u32)).collect();
        assert!(
            seconds == stored || seconds == stored + 1,
            "run {run}: {stored} were stored, {seconds} are in the file"
        );
        assert_eq!(recording.totals(Boundary::START, end).unwrap(), sum(&all), "run {run}");
        assert!(!recording.is_complete() && !recording.is_salvaged());
        most = most.max(seconds);
        merged += u64::from(recording.intervals().len() < seconds);
    }
    println!("at most {most} intervals, {merged} files with merged ones");
    assert!(merged > 0, "no old intervals were merged");
}

#[test]
fn killed_writer_has_exact_sums_of_merged_processes() {
    const PROCESSES_OF_SECOND: u64 = 50;
    let directory = Scratch::in_memory();
    let mut random = random();
    let mut merged = 0;
    for run in 0..20 {
        let path = directory.path("run.memtrace");
        let moment = Duration::from_micros(random(10_000));
        let stored = run_and_kill(&path, (PROCESSES, PROCESSES_OF_SECOND), 50 + random(70), moment);
        let recording = Recording::open(&path).unwrap();
        let end = recording.end();
        assert!((stored..=stored + 1).contains(&(end.at().as_secs() as usize)), "run {run}");
        image_merges::check_boundary(&recording, end, PROCESSES_OF_SECOND);
        merged += usize::from(!recording.merged_images(Boundary::START, end).unwrap().is_empty());
    }
    assert!(merged > 0, "no processes were merged");
}

#[test]
fn killed_writer_has_exact_usage_of_threads() {
    const THREADS_OF_SERVER: u64 = 100;
    let directory = Scratch::in_memory();
    let mut random = random();
    let mut merged = 0;
    for run in 0..12 {
        let path = directory.path("run.memtrace");
        let moment = Duration::from_micros(random(20_000));
        let stored = run_and_kill(&path, (THREADS, THREADS_OF_SERVER), 150 + random(50), moment);
        let recording = Recording::open(&path).unwrap();
        let seconds = recording.end().at().as_secs();
        assert!((stored..=stored + 1).contains(&(seconds as usize)), "run {run}");
        let all: Vec<_> = (0..seconds).map(|second| thread_model::monitored(second, THREADS_OF_SERVER)).collect();
        thread_model::check(&recording, &all);
        merged += usize::from(recording.intervals().len() < all.len());
    }
    assert!(merged > 0, "no old intervals were merged");
}
