//! Measures the cost of sampled traces of running programs, with stacks: in phases of one process, which is traced and untraced in turn.
//!
//! The result also has the cost of an exact trace of the same process, and the cost of heaptrack and of jemalloc's profiler, for which a
//! process has to be started again. It has the cost of an empty loop with experiments that explain it, the times for which
//! processes are stopped, and the cost of a trace of the whole machine.

mod compiler;
mod empty_loop;
mod machine;
mod running;
mod stops;
mod workloads;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::slice;

use anyhow::{Context as _, Result};
use compiler::compile;
use empty_loop::EmptyLoop;
use harness::{Report, Scratch};
use machine::WholeMachine;
use running::Running;
use serde::Serialize;
use stops::Stopped;
use workloads::Workload;

use crate::heaptrack::{self, Heaptrack};
use crate::machine::Machine;
use crate::memtrace::Memtrace;
use crate::options::Options;
use crate::processors::Processors;
use crate::statistics::Spread;

/// Debian's jemalloc, with a profiler.
const JEMALLOC: &str = "libjemalloc.so.2";

/// Settings of jemalloc's profiler: one sample in 512 KiB.
const PROFILER: (&str, &str) = ("MALLOC_CONF", "prof:true,lg_prof_sample:19");

/// Kinds of traces of a running process.
const MODES: [Mode; 4] = [
    Mode { name: "no-samples", options: &["--allow-patching", "--sample-interval", "4GiB"] },
    Mode { name: "interval", options: &["--allow-patching", "--sample-interval", "512KiB"] },
    Mode { name: "rate", options: &["--allow-patching", "--samples-per-second", "1000"] },
    Mode { name: "exact", options: &["--ring-size", "64MiB"] },
];

/// Kind of trace.
#[derive(Clone, Copy, Debug)]
struct Mode {
    /// Name in the result.
    name: &'static str,
    options: &'static [&'static str],
}

#[derive(Debug, Serialize)]
pub(crate) struct Sampled {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    programs: Vec<ProgramResult>,
    empty_loop: EmptyLoop,
    stops: Vec<Stopped>,
    whole_machine: WholeMachine,
    left_out: Vec<LeftOut>,
}

/// Results of one program.
#[derive(Debug, Serialize)]
struct ProgramResult {
    name: &'static str,
    does: &'static str,
    /// Largest accepted ratio of the mode `rate`.
    limit: f64,
    /// Processor time of a round without a tracer, in milliseconds.
    ms: Spread,
    modes: Vec<ModeResult>,
    preloaded: Vec<Preloaded>,
}

/// Results of one kind of trace.
#[derive(Debug, Default, Serialize)]
struct ModeResult {
    name: &'static str,
    /// Processor time of a round, divided by the mean of the untraced phases before and after.
    ratios: Vec<f64>,
    #[serde(flatten)]
    ratio: Option<Spread>,
    samples_per_s: Option<Spread>,
    #[serde(skip)]
    rates: Vec<f64>,
    /// Number of lost events in all rounds.
    lost: u64,
}

/// Results of a library that is preloaded.
#[derive(Debug, Serialize)]
struct Preloaded {
    name: &'static str,
    /// Processor time of a round, divided by the processor time of a process without the profiler in the same round.
    ratio: Spread,
}

/// Program or tracer that was not measured.
#[derive(Debug, Serialize)]
struct LeftOut {
    name: &'static str,
    reason: String,
}

/// Measures all programs, the empty loop, the stops and the whole machine.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Sampled> {
    let scratch = Scratch::new();
    let (workloads, missing) = workloads::all(&scratch);
    let mut left_out: Vec<_> =
        missing.into_iter().map(|name| LeftOut { name, reason: format!("{name} is not installed") }).collect();
    if !heaptrack::is_installed() {
        left_out.push(LeftOut { name: "heaptrack", reason: String::from("heaptrack is not installed") });
    }
    let mut programs = Vec::new();
    for workload in &workloads {
        let mut result = measure(workload, options, processors, &scratch)?;
        if !workload.is_server() {
            let folder = scratch.subdirectory(&format!("preloaded-{}", workload.name));
            result.preloaded = measure_preloaded(workload, options, processors, &folder)?;
        }
        programs.push(result);
    }
    programs.push(compile(options, processors, &scratch)?);
    let empty_loop = empty_loop::measure(options, processors, &scratch)?;
    let stops = stops::measure(options, processors, &scratch)?;
    // It lets this process use all processors, so it is last.
    let whole_machine = machine::measure(options, processors, &scratch)?;
    Ok(Sampled {
        benchmark: "sampled",
        machine: Machine::current(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        programs,
        empty_loop,
        stops,
        whole_machine,
        left_out,
    })
}

/// Traces one process in turn with all modes. An untraced phase is before and after each.
fn measure(
    workload: &Workload,
    options: &Options,
    processors: &Processors,
    scratch: &Scratch,
) -> Result<ProgramResult> {
    let mut running = Running::start(workload, &processors.all(), &[])?;
    let (mut modes, mut untraced) = (MODES.map(ModeResult::of), Vec::new());
    for round in 0..options.rounds {
        eprintln!("    {}: round {} of {}", workload.name, round + 1, options.rounds);
        let mut before = running.measure(options.slice)?;
        untraced.push(before * 1e3);
        for index in 0..MODES.len() {
            // Another mode is first in each round.
            let place = (index + round) % MODES.len();
            let report = scratch.join("report.json");
            let memtrace = Memtrace::attach(&options.memtrace, running.pid(), MODES[place].options, report)?;
            let traced = running.measure(options.slice)?;
            let report = memtrace.stop()?;
            let after = running.measure(options.slice)?;
            modes[place].add(traced / f64::midpoint(before, after), &report);
            before = after;
        }
    }
    Ok(ProgramResult {
        name: workload.name,
        does: workload.does,
        limit: workload.limit,
        ms: Spread::new(untraced),
        modes: modes.into_iter().map(ModeResult::summarize).collect(),
        preloaded: Vec::new(),
    })
}

impl ModeResult {
    fn of(mode: Mode) -> Self {
        Self { name: mode.name, ..Self::default() }
    }

    fn add(&mut self, ratio: f64, report: &Report) {
        self.ratios.push(ratio);
        self.lost += report.total_losses();
        let samples = report.content.totals.alloc_samples;
        self.rates.extend(samples.map(|samples| samples as f64 / report.duration_s));
    }

    fn summarize(self) -> Self {
        let spread = |values: &[f64]| (!values.is_empty()).then(|| Spread::new(values.iter().copied()));
        Self { ratio: spread(&self.ratios), samples_per_s: spread(&self.rates), ..self }
    }
}

/// Starts the program with and without profilers that are preloaded, in turn.
fn measure_preloaded(
    workload: &Workload,
    options: &Options,
    processors: &Processors,
    folder: &Path,
) -> Result<Vec<Preloaded>> {
    let (mut of_heaptrack, mut of_profiler) = (Vec::new(), Vec::new());
    let jemalloc = ("LD_PRELOAD", OsString::from(JEMALLOC));
    let round_of = |variables: &[(&str, OsString)]| {
        let mut running = Running::start(workload, &processors.all(), variables)?;
        running.measure(options.slice)
    };
    for round in 0..options.rounds {
        if heaptrack::is_installed() {
            let plain = round_of(&[])?;
            // One folder for each run: the pipe of a killed program remains.
            let folder = folder.join(round.to_string());
            fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
            let interpreter = Heaptrack::start(&folder)?;
            of_heaptrack.push(round_of(&interpreter.environment())? / plain);
        }
        let plain = round_of(slice::from_ref(&jemalloc))?;
        let (name, value) = PROFILER;
        of_profiler.push(round_of(&[jemalloc.clone(), (name, OsString::from(value))])? / plain);
    }
    let all = [("heaptrack", of_heaptrack), ("jemalloc-profiler", of_profiler)];
    let measured = all.into_iter().filter(|(_, ratios)| !ratios.is_empty());
    Ok(measured.map(|(name, ratios)| Preloaded { name, ratio: Spread::new(ratios) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_has_the_rate_of_its_samples() {
        let mut report = Report::default();
        report.content.duration_s = 2.0;
        report.content.totals.alloc_samples = Some(3000);
        let mut result = ModeResult::of(MODES[2]);
        result.add(1.0, &report);
        report.content.totals.alloc_samples = Some(1000);
        result.add(1.5, &report);
        let result = result.summarize();
        assert_eq!(result.ratio, Some(Spread { median: 1.25, min: 1.0, max: 1.5 }));
        assert_eq!(result.samples_per_s, Some(Spread { median: 1000.0, min: 500.0, max: 1500.0 }));
        assert_eq!(ModeResult::of(MODES[3]).summarize().samples_per_s, None);
    }
}
