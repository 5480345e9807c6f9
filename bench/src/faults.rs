//! Measures the slowdown of a parallel build while memtrace traces the page faults of the machine, and the accuracy of
//! a sampled trace.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use harness::report::Stack;
use harness::{Report, Scratch};
use serde::Serialize;

use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processor_time;
use crate::processors::Processors;
use crate::programs::{self, Program};
use crate::statistics::Spread;

/// The sampled trace contains one page in `SAMPLE`.
const SAMPLE: u64 = 64;

/// Number of files that a build compiles, and number of compilers at a time.
const UNITS: usize = 8;
const CONCURRENT: usize = 2;

/// Comm of the compiler.
const COMPILER: &str = "cc1plus";

/// Number of sites that are compared in a round: the sites with the most bytes.
const SITES: usize = 10;

#[derive(Debug, Serialize)]
pub(crate) struct Faults {
    does: &'static str,
    sample: u64,
    /// Duration of an untraced build, in seconds.
    seconds: Spread,
    sampled: Cost,
    exact: Cost,
    /// Page faults of the compilers in the last exact trace.
    touched: u64,
    /// Lost events in the traces of all timed builds, by loss reason.
    lost: BTreeMap<String, u64>,
    /// Number of compared sites in all rounds (`sites`), and number of the sites with an estimate within the error that
    /// memtrace states (`within`).
    sites: usize,
    within: usize,
}

/// Cost of tracing, relative to the mean of the untraced builds before and after.
#[derive(Debug, Serialize)]
struct Cost {
    time: Spread,
    /// Processor time of the build and of memtrace.
    processor: Spread,
}

/// Duration and processor time of a build, in seconds.
#[derive(Clone, Copy)]
struct BuildTime {
    wall: f64,
    /// Time on all processors, including the time of memtrace.
    processor: f64,
}

/// Traced build between two untraced builds.
struct Round {
    before: BuildTime,
    traced: BuildTime,
    after: BuildTime,
}

/// Measures all variants in turn, with all processors available to each process.
pub(crate) fn run(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<Faults> {
    processors.share()?;
    let program = programs::compiler(&scratch.subdirectory("build"), options.scale)?;
    let folder = scratch.subdirectory("faults");
    let trace = |sample: u64| {
        let report = folder.join(format!("{sample}.json"));
        Memtrace::trace_system(&options.memtrace, &["--events", "fault", "--sample", &sample.to_string()], report)
    };
    let empty = programs::compiler_of_nothing(&program);
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    let mut add_losses = |report: &Report| {
        for (name, &count) in report.losses.iter().filter(|&(_, &count)| count > 0) {
            *lost.entry(name.to_string()).or_default() += count;
        }
    };
    let (mut sampled, mut exact) = (Vec::new(), Vec::new());
    let (mut sites, mut within, mut touched) = (0, 0, 0);
    // The first build fills the page cache.
    build(&program, None)?;
    let mut before = build(&program, None)?;
    for round in 0..options.rounds {
        eprintln!("    page faults of a build: round {} of {}", round + 1, options.rounds);
        for (sample, rounds) in [(SAMPLE, &mut sampled), (1, &mut exact)] {
            let memtrace = trace(sample)?;
            introduce(&empty)?;
            let traced = build(&program, Some(&memtrace))?;
            add_losses(&memtrace.stop()?);
            let after = build(&program, None)?;
            rounds.push(Round { before, traced, after });
            before = after;
        }
        // Both traces cover the same build, so that differences are due to sampling.
        let (sampling, full) = (trace(SAMPLE)?, trace(1)?);
        introduce(&empty)?;
        build(&program, None)?;
        let (estimate, reference) = (sampling.stop()?, full.stop()?);
        let (compared, accurate) = compare(&reference, &estimate);
        sites += compared;
        within += accurate;
        touched = sites_of(&reference).values().map(|site| site.count).sum();
    }
    Ok(Faults {
        does: "compiles eight large C++ files, two at a time, as `g++ -O1 -c` has it do",
        sample: SAMPLE,
        seconds: Spread::new(sampled.iter().chain(&exact).map(|round| round.before.wall)),
        sampled: cost(&sampled),
        exact: cost(&exact),
        touched,
        lost,
        sites,
        within,
    })
}

fn cost(rounds: &[Round]) -> Cost {
    let relative = |time: fn(&BuildTime) -> f64| {
        let ratio = |round: &Round| time(&round.traced) / f64::midpoint(time(&round.before), time(&round.after));
        Spread::new(rounds.iter().map(ratio))
    };
    Cost { time: relative(|time| time.wall), processor: relative(|time| time.processor) }
}

/// Runs the compiler briefly, so that memtrace reads the call frame information of the compiler before the measurement.
/// A long-running memtrace has already read the call frame information of all executables that run often.
fn introduce(empty: &Program) -> Result<()> {
    (0..5).try_for_each(|_| finish(start(empty)?))
}

/// Runs one build. `memtrace`: the memtrace that traces the build, if any. The result includes its processor time.
fn build(program: &Program, memtrace: Option<&Memtrace>) -> Result<BuildTime> {
    let processor = || -> Result<f64> {
        let tracer = memtrace.map(|memtrace| processor_time::process(memtrace.pid())).transpose()?;
        Ok(processor_time::children()? + tracer.unwrap_or(0.0))
    };
    let (start_time, start_processor) = (Instant::now(), processor()?);
    let mut running: Vec<Child> = Vec::new();
    for _ in 0..UNITS {
        if running.len() == CONCURRENT {
            finish(running.remove(0))?;
        }
        running.push(start(program)?);
    }
    running.into_iter().try_for_each(finish)?;
    Ok(BuildTime { wall: start_time.elapsed().as_secs_f64(), processor: processor()? - start_processor })
}

fn start(program: &Program) -> Result<Child> {
    let words: Vec<&OsString> = program.words.iter().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {}", program.name))
}

fn finish(mut compiler: Child) -> Result<()> {
    let status = compiler.wait().context("cannot wait for the compiler")?;
    if status.success() { Ok(()) } else { bail!("the compiler ended with {status}") }
}

/// Compares the largest sites of `reference` with their estimates. Returns the number of these sites, and the number of
/// sites with an estimate within the error that memtrace states.
fn compare(reference: &Report, estimate: &Report) -> (usize, usize) {
    let mut sites: Vec<_> = sites_of(reference).into_iter().collect();
    sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.bytes));
    let estimated: HashMap<_, _> = sites_of(estimate).into_iter().collect();
    let accurate = sites.iter().take(SITES).filter(|(name, site)| {
        let estimate = estimated.get(name).copied().unwrap_or_default();
        (estimate.bytes.abs_diff(site.bytes) as f64) <= estimate.variance.sqrt()
    });
    (sites.len().min(SITES), accurate.count())
}

/// Touched pages of the compilers with one stack.
#[derive(Clone, Copy, Default)]
struct Site {
    bytes: u64,
    count: u64,
    variance: f64,
}

/// Returns the sites of the compilers, by stack. Other processes, such as the other tracer, are left out, because the
/// two traces start and end at different times.
fn sites_of(report: &Report) -> BTreeMap<String, Site> {
    let mut sites: BTreeMap<String, Site> = BTreeMap::new();
    for stack in report.stacks.iter().filter(|stack| report.processes[stack.process].comm == COMPILER) {
        let site = sites.entry(folded(stack)).or_default();
        site.bytes += stack.totals.alloc_bytes;
        site.count += stack.totals.alloc_count;
        site.variance += (stack.content.totals.alloc_error_bytes.unwrap_or(0) as f64).powi(2);
    }
    sites
}

/// Returns the frames of a stack as text. The text identifies the stack in all processes.
fn folded(stack: &Stack) -> String {
    let frames = stack.frames.iter().map(|frame| match (&frame.name, &frame.object) {
        (Some(name), _) => name.to_string(),
        (None, object) => format!("{}+{:#x}", object.as_deref().unwrap_or("?"), frame.offset.unwrap_or(0)),
    });
    frames.collect::<Vec<_>>().join(";")
}
