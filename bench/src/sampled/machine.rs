//! Cost of a sampled trace of the whole machine while it compiles and serves redis, on all processors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use harness::Scratch;
use serde::Serialize;

use super::running::Running;
use super::workloads;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processor_time;
use crate::processors::Processors;
use crate::programs::{self, Program};
use crate::statistics::Spread;

/// Number of files that a build compiles, and number of compilers at a time.
const UNITS: usize = 6;
const CONCURRENT: usize = 2;

/// Options of the trace.
const OPTIONS: &[&str] = &["--allow-patching", "--samples-per-second", "1000"];

#[derive(Debug, Serialize)]
pub(super) struct WholeMachine {
    does: &'static str,
    /// Duration of an untraced build, in seconds.
    seconds: Spread,
    /// Duration of a build, divided by the mean of the untraced builds before and after.
    ratio: Spread,
    /// Processor time of memtrace while a build runs, as a share of one processor.
    memtrace: Spread,
    /// Number of patched processes.
    patched: Spread,
    /// Lost events of all rounds, by loss reason.
    lost: BTreeMap<String, u64>,
}

pub(super) fn measure(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<WholeMachine> {
    processors.share()?;
    let program = programs::compiler(&scratch.subdirectory("machine"), options.scale)?;
    let (workloads, _) = workloads::all(&scratch.subdirectory("servers"));
    let redis = workloads.iter().find(|workload| workload.name == "redis-server").context("redis-server is missing")?;
    let mut server = Running::start(redis, &processors.with_tracers(), &[])?;
    let is_ending = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_ending);
    // The client keeps the server busy until the last build has ended.
    let client = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            server.measure(Duration::ZERO)?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let measured = measure_builds(options, scratch, &program);
    is_ending.store(true, Ordering::Relaxed);
    client.join().map_err(|_| anyhow!("the client of redis-server has failed"))??;
    measured
}

fn measure_builds(options: &Options, scratch: &Scratch, program: &Program) -> Result<WholeMachine> {
    let (mut seconds, mut ratios, mut shares, mut patched) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    // The first build fills the page cache.
    build(program)?;
    let mut before = build(program)?;
    for round in 0..options.rounds {
        eprintln!("    whole machine: round {} of {}", round + 1, options.rounds);
        let report = scratch.join("machine.json");
        // Page faults of processes that are not patched are sampled too, with a report of their own.
        let of_heap = scratch.join("machine.heap.json");
        let memtrace = Memtrace::trace_system(&options.memtrace, OPTIONS, report)?.with_report(of_heap);
        // The server is patched, and the tables of the compiler are read. A long trace is in this state for most of its time.
        build(program)?;
        let (own, start) = (processor_time::process(memtrace.pid())?, Instant::now());
        let traced = build(program)?;
        let share = (processor_time::process(memtrace.pid())? - own) / start.elapsed().as_secs_f64();
        let report = memtrace.stop()?;
        let after = build(program)?;
        for (name, &count) in report.losses.iter().filter(|&(_, &count)| count > 0) {
            *lost.entry(name.to_string()).or_default() += count;
        }
        seconds.push(before);
        ratios.push(traced / f64::midpoint(before, after));
        shares.push(share);
        patched.push(report.content.patched_processes.len() as f64);
        before = after;
    }
    Ok(WholeMachine {
        does: "compiles six C++ files, two at a time, while redis-server stores values without a pause",
        seconds: Spread::new(seconds),
        ratio: Spread::new(ratios),
        memtrace: Spread::new(shares),
        patched: Spread::new(patched),
        lost,
    })
}

/// Runs one build, and returns its duration in seconds.
fn build(program: &Program) -> Result<f64> {
    let start = Instant::now();
    let mut running: Vec<Child> = Vec::new();
    for _ in 0..UNITS {
        if running.len() == CONCURRENT {
            finish(running.remove(0))?;
        }
        let words: Vec<&OsString> = program.words.iter().collect();
        let child = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).spawn();
        running.push(child.with_context(|| format!("cannot run {}", program.name))?);
    }
    running.into_iter().try_for_each(finish)?;
    Ok(start.elapsed().as_secs_f64())
}

fn finish(mut compiler: Child) -> Result<()> {
    let status = compiler.wait().context("cannot wait for the compiler")?;
    if status.success() { Ok(()) } else { bail!("the compiler ended with {status}") }
}
