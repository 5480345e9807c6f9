//! Longest stops of a process in a trace, by the number of its threads.

use std::process::Command;

use anyhow::{Context as _, Result};
use harness::Scratch;
use serde::Serialize;

use crate::children::start_victim;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processors::Processors;
use crate::victim;

/// Numbers of threads, and of busy ones.
const CROWDS: [(u32, u32); 7] = [(1, 0), (1, 1), (16, 0), (16, 1), (16, 15), (200, 0), (200, 8)];

/// Number of traces of a process, for each round of the benchmark.
const TRACES: usize = 5;

/// Stops of a process. Each trace has two of all threads, and the first trace has one of the main thread. A trace reports the longest.
#[derive(Debug, Serialize)]
pub(super) struct Stopped {
    threads: u32,
    busy: u32,
    traces: usize,
    median_ms: f64,
    /// 99th percentile, and the longest one.
    most_ms: f64,
    worst_ms: f64,
}

pub(super) fn measure(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<Vec<Stopped>> {
    CROWDS.into_iter().map(|(threads, busy)| of_crowd(threads, busy, options, processors, scratch)).collect()
}

fn of_crowd(threads: u32, busy: u32, options: &Options, processors: &Processors, scratch: &Scratch) -> Result<Stopped> {
    let traces = options.rounds * TRACES;
    eprintln!("    stops of {threads} threads, {busy} of them busy: {traces} traces");
    let words = [processors.all(), threads.to_string(), busy.to_string()];
    let victim = start_victim(Command::new(victim::path("crowd")).args(words));
    let mut times = Vec::new();
    for _ in 0..traces {
        let words = ["--allow-patching", "--sample-interval", "64MiB"];
        let memtrace = Memtrace::attach(&options.memtrace, victim.pid(), &words, scratch.join("report.json"))?;
        let report = memtrace.stop()?;
        let patched = report.content.patched_processes.first().context("the process was not patched")?;
        times.push(patched.stop_s * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    Ok(Stopped { threads, busy, traces, median_ms: at(50), most_ms: at(99), worst_ms: at(100) })
}
