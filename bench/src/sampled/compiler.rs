//! The compiler, which ends after one file: each run is a process of its own.
//!
//! memtrace attaches after the start of the process. The ratio compares the processor times from the end of the
//! attachment on: earlier time counts for no phase.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness::Scratch;

use super::{MODES, Mode, ModeResult, ProgramResult};
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processor_time;
use crate::processors::Processors;
use crate::programs::{self, Program};
use crate::statistics::Spread;

/// Size of the compiled file, relative to the file of other benchmarks: a run takes some seconds.
const SCALE: u64 = 2;

/// Maximum time until the process executes the compiler.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Measures the compiler untraced and with all modes, in turn.
pub(super) fn compile(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<ProgramResult> {
    let program = programs::compiler(&scratch.subdirectory("compiler"), options.scale * SCALE)?;
    let processors = processors.one();
    let run = || processor_time::of_child(start(&program, &processors)?);
    let (mut modes, mut untraced) = (MODES.map(ModeResult::of), Vec::new());
    for round in 0..options.rounds {
        eprintln!("    {}: round {} of {}", program.name, round + 1, options.rounds);
        let mut before = run()?;
        untraced.push(before * 1e3);
        for index in 0..MODES.len() {
            let place = (index + round) % MODES.len();
            let child = start(&program, &processors)?;
            let Mode { options: words, .. } = MODES[place];
            let memtrace = Memtrace::attach(&options.memtrace, child.id(), words, scratch.join("report.json"))?;
            let attached = processor_time::process(child.id())?;
            let traced = processor_time::of_child(child)?;
            let report = memtrace.finish()?;
            let after = run()?;
            let plain = f64::midpoint(before, after);
            ensure!(attached < plain / 2.0, "memtrace has attached after half of the run of {}", program.name);
            modes[place].add((traced - attached) / (plain - attached), &report);
            before = after;
        }
    }
    Ok(ProgramResult {
        name: program.name,
        does: program.does,
        limit: 1.05,
        ms: Spread::new(untraced),
        modes: modes.into_iter().map(ModeResult::summarize).collect(),
        preloaded: Vec::new(),
    })
}

/// Starts the compiler, and waits until the process has executed it.
fn start(program: &Program, processors: &str) -> Result<Child> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processors]).args(&program.words).stdin(Stdio::null());
    let child = command.spawn().with_context(|| format!("cannot run {}", program.name))?;
    let executable = fs::canonicalize(&program.words[0]).context("the compiler has no path")?;
    let is_started = || fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|path| path == executable);
    let start = Instant::now();
    while !is_started() {
        ensure!(start.elapsed() < TIMEOUT, "{} does not start", program.name);
        thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}
