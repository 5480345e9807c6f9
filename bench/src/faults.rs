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
use crate::programs::{self, Program};
use crate::scratch::Scratch;
use crate::statistics::Spread;

/// One page in so many is followed.
const SAMPLE: u64 = 64;

/// As many programs are compiled, two at a time.
const UNITS: usize = 4;
const AT_ONCE: usize = 2;

/// So many of the largest sites are compared.
const SITES: usize = 10;

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Faults {
    does: &'static str,
    sample: u64,
    /// Seconds from beginning to end, untraced.
    seconds: Spread,
    /// Against the untraced build of the same round.
    sampled: Spread,
    exact: Spread,
    /// Page faults in one build, as they were all seen.
    touched: u64,
    /// Events lost in all rounds.
    lost: u64,
    /// Of the largest sites of the exact runs, how many were compared, and how many were off by no more than was shown.
    sites: usize,
    within: usize,
}

/// One round.
struct Round {
    bare: f64,
    sampled: f64,
    exact: f64,
}

/// Measures all three in turn.
pub(crate) fn run(options: &Options, scratch: &Scratch) -> Result<Faults> {
    let program = programs::compiler(&scratch.folder("build")?, options.scale)?;
    let report = scratch.folder("faults")?.join("faults.json");
    let traced = |sample: u64| -> Result<(f64, Report)> {
        let sample = sample.to_string();
        let memtrace = Memtrace::everywhere(&options.memtrace, &["--events", "fault", "--sample", &sample], &report)?;
        let seconds = build(&program)?;
        Ok((seconds, memtrace.stop()?))
    };
    let (mut rounds, mut lost, mut sites, mut within, mut touched) = (Vec::new(), 0, 0, 0, 0);
    for round in 0..options.rounds {
        eprintln!("    page faults of a build: round {} of {}", round + 1, options.rounds);
        let bare = build(&program)?;
        let (sampled, estimate) = traced(SAMPLE)?;
        let (exact, truth) = traced(1)?;
        rounds.push(Round { bare, sampled, exact });
        lost += estimate.lost() + truth.lost();
        touched = truth.totals.alloc_count;
        let (compared, near) = compare(&truth, &estimate);
        sites += compared;
        within += near;
    }
    let against = |seconds: fn(&Round) -> f64| Spread::of(rounds.iter().map(|round| seconds(round) / round.bare));
    Ok(Faults {
        does: "compiles four large C++ files, two at a time, as `g++ -O1 -c` has it do",
        sample: SAMPLE,
        seconds: Spread::of(rounds.iter().map(|round| round.bare)),
        sampled: against(|round| round.sampled),
        exact: against(|round| round.exact),
        touched,
        lost,
        sites,
        within,
    })
}

/// The seconds until everything is compiled.
fn build(program: &Program) -> Result<f64> {
    let began = Instant::now();
    let mut running: Vec<Child> = Vec::new();
    for _ in 0..UNITS {
        if running.len() == AT_ONCE {
            finish(running.remove(0))?;
        }
        let words: Vec<&OsString> = program.words.iter().collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        running.push(command.spawn().with_context(|| format!("cannot run {}", program.name))?);
    }
    running.into_iter().try_for_each(finish)?;
    Ok(began.elapsed().as_secs_f64())
}

fn finish(mut compiler: Child) -> Result<()> {
    let status = compiler.wait().context("the compiler cannot be waited for")?;
    if status.success() { Ok(()) } else { bail!("the compiler ended with {status}") }
}

/// Of the largest sites of `truth`, how many there are, and how many `estimate` is as near to as it says: by all bytes that
/// were touched.
fn compare(truth: &Report, estimate: &Report) -> (usize, usize) {
    let mut exact: Vec<_> = sites(truth).into_iter().collect();
    exact.sort_by_key(|(_, (bytes, _))| std::cmp::Reverse(*bytes));
    let estimated: HashMap<_, _> = sites(estimate).into_iter().collect();
    let near = exact.iter().take(SITES).filter(|(site, (bytes, _))| {
        let (estimate, variance) = estimated.get(site).copied().unwrap_or_default();
        (estimate.abs_diff(*bytes) as f64) <= variance.sqrt()
    });
    (exact.len().min(SITES), near.count())
}

/// Bytes by site, of whichever process, and the square of what they may be off by.
fn sites(report: &Report) -> BTreeMap<String, (u64, f64)> {
    let mut sites: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for stack in &report.stacks {
        let (bytes, variance) = sites.entry(report.place_of(stack)).or_default();
        *bytes += stack.alloc_bytes;
        *variance += (stack.alloc_error_bytes.unwrap_or(0) as f64).powi(2);
    }
    sites
}
