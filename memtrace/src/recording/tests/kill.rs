//! Writers that are killed at any moment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::sample_intervals::{allocated, header, second};
use super::sum;
use crate::model::Bytes;
use crate::recording::*;
use crate::scratch::Scratch;

/// Environment variable with the file that the child process writes.
const FILE: &str = "MEMTRACE_TEST_RECORDING";

/// Environment variable with the number of stacks that change in each interval.
const STACKS: &str = "MEMTRACE_TEST_STACKS";

/// An interval with changes of `stacks` stacks more than those of [`second`].
fn interval(at: u64, stacks: u32) -> Interval {
    let mut interval = second(at);
    interval.changes.extend((1000..1000 + stacks).map(|path| allocated(1, path, at + 1)));
    interval
}

/// Runs in a child process of [`killed_writer_loses_the_last_interval_only`]: writes intervals, and the number of stored
/// ones to its standard output. Without the variable there is nothing to do.
#[test]
fn child_process_that_writes() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let stacks = std::env::var(STACKS).unwrap().parse().unwrap();
    // Small enough that old intervals are merged.
    let settings = Settings { size_limit: Bytes(1 << 20), queue: 4, ..Settings::default() };
    let writer = Writer::create(path.as_ref(), &header(), settings).unwrap();
    for at in 0.. {
        writer.push(interval(at, stacks));
        while writer.status().intervals <= at {
            std::thread::yield_now();
        }
        println!("stored {}", at + 1);
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn killed_writer_loses_the_last_interval_only() {
    let directory = Scratch::in_memory();
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut most, mut merged) = (0, 0);
    for run in 0..200 {
        let path = directory.path("run.memtrace");
        let stacks = if run % 20 == 0 { 1000 } else { 0 };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "recording::tests::kill::child_process_that_writes", "--nocapture"])
            .env(FILE, &path)
            .env(STACKS, stacks.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = 1 + random(20) + if stacks > 0 { 50 } else { 0 };
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
        // A moment within the next interval, not a wait for something.
        let (start, moment) = (Instant::now(), Duration::from_micros(random(3000)));
        while start.elapsed() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let stored = read_until(u64::MAX) as usize;
        let recording = Recording::open(&path).unwrap();
        let end = recording.end();
        let seconds = end.at().as_secs() as usize;
        let all: Vec<_> = (0..seconds as u64).map(|at| interval(at, stacks)).collect();
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
