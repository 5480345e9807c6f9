//! What a pair of malloc and free takes, untraced and traced by one tool and another.

mod variant;

use anyhow::{Context as _, Result};
use serde::Serialize;
use variant::{Kind, Running};

use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::options::Options;
use crate::probes::Site;
use crate::processors::Processors;
use crate::scratch::Scratch;
use crate::statistics::Spread;
use crate::{bpftrace, heaptrack, memtrace, victim};

/// How many pairs a variant does before it is measured: enough for a guess at how many it can do in a slice.
const WARM_UP: u64 = 20_000;

/// What the victim does; `victims/pairs.c` says more.
const MODES: [&str; 3] = ["loop", "live", "threads"];

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    /// Where memtrace has probed malloc and free, and so where the empty programs are.
    sites: Vec<Site>,
    modes: Vec<Mode>,
    left_out: Vec<LeftOut>,
}

/// One thing that the victim did.
#[derive(Debug, Serialize)]
struct Mode {
    name: &'static str,
    /// The processors that it could use.
    processors: String,
    variants: Vec<Variant>,
}

/// One way to be traced.
#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Nanoseconds a pair, in each round.
    ns: Vec<f64>,
    #[serde(flatten)]
    spread: Spread,
    /// The median against that of the empty programs.
    to_floor: Option<f64>,
    /// The median against that of the bare program.
    to_bare: Option<f64>,
    /// Events lost, and frames of a stack, where the tool tells.
    lost: Option<u64>,
    frames: Option<usize>,
}

/// What could not be measured.
#[derive(Debug, Serialize)]
struct LeftOut {
    name: &'static str,
    reason: String,
}

/// Measures every variant in every mode.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Overhead> {
    let scratch = Scratch::new()?;
    let (kinds, left_out) = kinds(options)?;
    let mut overhead = Overhead {
        benchmark: "overhead",
        machine: Machine::this(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        sites: Vec::new(),
        modes: Vec::new(),
        left_out,
    };
    for name in MODES {
        let processors = if name == "threads" { processors.all() } else { processors.one() };
        let mut running = Vec::new();
        for &kind in &kinds {
            eprintln!("    {name}: {}", kind.name());
            // A library each: what one variant has placed in it, no other passes.
            let libc = LibcCopy::make(scratch.folder(&format!("{name}-{}", kind.name()))?)?;
            let started = Running::start(kind, &libc, name, &processors, options, &overhead.sites)
                .with_context(|| format!("{} cannot be measured", kind.name()))?;
            if overhead.sites.is_empty() {
                overhead.sites = started.sites()?;
            }
            running.push(started);
        }
        let measured = measure(&mut running, options)?;
        let variants = conclude(running, measured)?;
        overhead.modes.push(Mode { name, processors, variants });
    }
    Ok(overhead)
}

/// What can be measured here, memtrace first, whose sites are those of the empty programs.
fn kinds(options: &Options) -> Result<(Vec<Kind>, Vec<LeftOut>)> {
    let mut kinds = vec![Kind::WithoutStacks, Kind::Bare, Kind::Floor, Kind::WithStacks];
    let mut left_out = Vec::new();
    let mut with = |kind: Kind, possible: bool, reason: &str| {
        if possible {
            kinds.push(kind);
        } else {
            left_out.push(LeftOut { name: kind.name(), reason: reason.to_owned() });
        }
    };
    let can_choose = memtrace::has_option(&options.memtrace, variant::SITE_OPTION)?;
    with(Kind::AtEntry, can_choose, "this memtrace has no option for it");
    with(Kind::Bpftrace, bpftrace::installed().is_some(), "bpftrace is not installed");
    with(Kind::Heaptrack, heaptrack::is_installed(), "heaptrack is not installed");
    Ok((kinds, left_out))
}

/// The nanoseconds of each variant in each round. In each round every variant has its turn.
fn measure(running: &mut [Running], options: &Options) -> Result<Vec<Vec<f64>>> {
    let mut pairs = Vec::new();
    for variant in running.iter_mut() {
        // What is done for the first time takes longer.
        variant.work(WARM_UP)?;
        pairs.push(variant.work(WARM_UP)?.pairs_in(options.slice).max(WARM_UP / 10));
    }
    let mut measured = vec![Vec::new(); running.len()];
    for round in 0..options.rounds {
        eprintln!("    round {} of {}", round + 1, options.rounds);
        for ((variant, &pairs), measured) in running.iter_mut().zip(&pairs).zip(&mut measured) {
            measured.push(variant.work(pairs)?.ns_a_pair());
        }
    }
    Ok(measured)
}

fn conclude(running: Vec<Running>, measured: Vec<Vec<f64>>) -> Result<Vec<Variant>> {
    let mut variants = Vec::new();
    // All targets end first, so that their tracers wait for the kernel's grace periods together.
    let ended = running.into_iter().map(Running::end_target).collect::<Result<Vec<_>>>()?;
    for (ended, ns) in ended.into_iter().zip(measured) {
        let name = ended.name();
        let told = ended.finish().with_context(|| format!("{name} did not end well"))?;
        let spread = Spread::of(ns.iter().copied());
        let (lost, frames) = told.map(|report| (report.lost(), report.frames())).unzip();
        variants.push(Variant { name, ns, spread, to_floor: None, to_bare: None, lost, frames });
    }
    let median = |kind: Kind| variants.iter().find(|v| v.name == kind.name()).map(|v| v.spread.median);
    let (floor, bare) = (median(Kind::Floor), median(Kind::Bare));
    for variant in &mut variants {
        variant.to_floor = floor.map(|floor| variant.spread.median / floor);
        variant.to_bare = bare.map(|bare| variant.spread.median / bare);
    }
    check_frames(&variants);
    Ok(variants)
}

/// What is compared are stacks of so many frames; other numbers of frames would be other work.
fn check_frames(variants: &[Variant]) {
    for variant in variants.iter().filter(|variant| Kind::WithoutStacks.name() != variant.name) {
        if let Some(frames) = variant.frames.filter(|&frames| frames != victim::FRAMES) {
            eprintln!("warning: {} took stacks of {frames} frames, not of {}", variant.name, victim::FRAMES);
        }
    }
}
