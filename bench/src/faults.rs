//! How much slower a parallel build runs while all page faults of the machine are followed, one page in so many, or each; and
//! how near the sample comes to the whole.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::memtrace::{Memtrace, Report};
use crate::options::Options;
use crate::processor_time;
use crate::processors::Processors;
use crate::programs::{self, Program};
use crate::scratch::Scratch;
use crate::statistics::Spread;

/// One page in so many is followed.
const SAMPLE: u64 = 64;

/// As many programs are compiled, two at a time.
const UNITS: usize = 8;
const AT_ONCE: usize = 2;

/// What the kernel calls a compiler.
const COMPILER: &str = "cc1plus";

/// So many of the largest sites are compared.
const SITES: usize = 10;

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Faults {
    does: &'static str,
    sample: u64,
    /// Seconds from beginning to end, untraced.
    seconds: Spread,
    sampled: Cost,
    exact: Cost,
    /// Page faults in one build, as they were all seen.
    touched: u64,
    /// Events lost in all rounds, by what became of them.
    lost: BTreeMap<String, u64>,
    /// Of the largest sites of the exact runs, how many were compared, and how many were off by no more than was shown.
    sites: usize,
    within: usize,
}

/// What following takes, against the mean of the untraced builds before and after.
#[derive(Debug, Serialize)]
struct Cost {
    /// How many times as long it took.
    time: Spread,
    /// How many times the processor time the build and memtrace took together.
    processor: Spread,
}

/// What a build took, in seconds.
#[derive(Clone, Copy)]
struct Took {
    time: f64,
    /// Of all processors, memtrace's share with it.
    processor: f64,
}

/// One build that was followed, and those around it that were not.
struct Followed {
    before: Took,
    took: Took,
    after: Took,
}

/// Measures all in turn, with all processors for everybody.
pub(crate) fn run(options: &Options, processors: &Processors, scratch: &Scratch) -> Result<Faults> {
    processors.share()?;
    let program = programs::compiler(&scratch.folder("build")?, options.scale)?;
    let folder = scratch.folder("faults")?;
    let follow = |sample: u64| {
        let report = folder.join(format!("{sample}.json"));
        Memtrace::everywhere(&options.memtrace, &["--events", "fault", "--sample", &sample.to_string()], &report)
    };
    let empty = programs::compiler_of_nothing(&program);
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    let mut count_lost = |report: &Report| {
        for (name, count) in report.losses().filter(|&(_, count)| count > 0) {
            *lost.entry(name.to_owned()).or_default() += count;
        }
    };
    let (mut sampled, mut exact) = (Vec::new(), Vec::new());
    let (mut sites, mut within, mut touched) = (0, 0, 0);
    // The first one finds files in the page cache that the others' predecessors left there.
    build(&program, None)?;
    let mut before = build(&program, None)?;
    for round in 0..options.rounds {
        eprintln!("    page faults of a build: round {} of {}", round + 1, options.rounds);
        for (sample, rounds) in [(SAMPLE, &mut sampled), (1, &mut exact)] {
            let memtrace = follow(sample)?;
            get_known(&empty)?;
            let took = build(&program, Some(&memtrace))?;
            count_lost(&memtrace.stop()?);
            let after = build(&program, None)?;
            rounds.push(Followed { before, took, after });
            before = after;
        }
        // Both see the same build: what they tell differently is the sample's.
        let (one_in_many, each) = (follow(SAMPLE)?, follow(1)?);
        get_known(&empty)?;
        build(&program, None)?;
        let (estimate, truth) = (one_in_many.stop()?, each.stop()?);
        let (compared, near) = compare(&truth, &estimate);
        sites += compared;
        within += near;
        touched = sites_of(&truth).values().map(|site| site.count).sum();
    }
    Ok(Faults {
        does: "compiles eight large C++ files, two at a time, as `g++ -O1 -c` has it do",
        sample: SAMPLE,
        seconds: Spread::of(sampled.iter().chain(&exact).map(|round| round.before.time)),
        sampled: cost(&sampled),
        exact: cost(&exact),
        touched,
        lost,
        sites,
        within,
    })
}

fn cost(rounds: &[Followed]) -> Cost {
    let against = |of: fn(&Took) -> f64| {
        Spread::of(rounds.iter().map(|round| of(&round.took) / f64::midpoint(of(&round.before), of(&round.after))))
    };
    Cost { time: against(|took| took.time), processor: against(|took| took.processor) }
}

/// Has the compiler run, for so short that it doesn't matter: what is left on all day has met before what runs often, and need
/// not read its call frame information first.
fn get_known(empty: &Program) -> Result<()> {
    (0..5).try_for_each(|_| finish(start(empty)?))
}

/// Compiles everything, while `memtrace` follows.
fn build(program: &Program, memtrace: Option<&Memtrace>) -> Result<Took> {
    let processor = || -> Result<f64> {
        let tracer = memtrace.map(|memtrace| processor_time::of(memtrace.pid())).transpose()?;
        Ok(processor_time::of_children()? + tracer.unwrap_or(0.0))
    };
    let (began, before) = (Instant::now(), processor()?);
    let mut running: Vec<Child> = Vec::new();
    for _ in 0..UNITS {
        if running.len() == AT_ONCE {
            finish(running.remove(0))?;
        }
        running.push(start(program)?);
    }
    running.into_iter().try_for_each(finish)?;
    Ok(Took { time: began.elapsed().as_secs_f64(), processor: processor()? - before })
}

fn start(program: &Program) -> Result<Child> {
    let words: Vec<&OsString> = program.words.iter().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command.spawn().with_context(|| format!("cannot run {}", program.name))
}

fn finish(mut compiler: Child) -> Result<()> {
    let status = compiler.wait().context("the compiler cannot be waited for")?;
    if status.success() { Ok(()) } else { bail!("the compiler ended with {status}") }
}

/// Of the largest sites of `truth`, how many there are, and how many `estimate` is as near to as it says: by all bytes that
/// were touched.
fn compare(truth: &Report, estimate: &Report) -> (usize, usize) {
    let mut exact: Vec<_> = sites_of(truth).into_iter().collect();
    exact.sort_by_key(|(_, site)| std::cmp::Reverse(site.bytes));
    let estimated: HashMap<_, _> = sites_of(estimate).into_iter().collect();
    let near = exact.iter().take(SITES).filter(|(place, site)| {
        let estimate = estimated.get(place).copied().unwrap_or_default();
        (estimate.bytes.abs_diff(site.bytes) as f64) <= estimate.variance.sqrt()
    });
    (exact.len().min(SITES), near.count())
}

/// A place where compilers touched pages.
#[derive(Clone, Copy, Default)]
struct Site {
    bytes: u64,
    count: u64,
    /// The square of what the bytes may be off by.
    variance: f64,
}

/// The compilers' sites: whatever else there is ends and begins at other times for one tracer than for the other, as the
/// other tracer does.
fn sites_of(report: &Report) -> BTreeMap<String, Site> {
    let mut sites: BTreeMap<String, Site> = BTreeMap::new();
    for stack in report.stacks.iter().filter(|stack| report.process_of(stack) == Some(COMPILER)) {
        let site = sites.entry(report.place_of(stack)).or_default();
        site.bytes += stack.alloc_bytes;
        site.count += stack.alloc_count;
        site.variance += (stack.alloc_error_bytes.unwrap_or(0) as f64).powi(2);
    }
    sites
}
