//! Measures the time per pair of malloc and free, untraced and under several tracers.

mod variant;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use harness::{Report, Scratch};
use serde::Serialize;
use variant::{Kind, TracedVictim};

use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::options::Options;
use crate::probes::ProbeSite;
use crate::processors::Processors;
use crate::statistics::Spread;
use crate::{bpftrace, heaptrack, memtrace, victim};

/// Number of pairs in a run before the measurement: enough to estimate the number of pairs per slice.
const WARM_UP: u64 = 20_000;

/// Modes of the victim (`victims/pairs.c`).
const MODES: [&str; 3] = ["loop", "live", "threads"];

#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    /// Probe sites in malloc and free, by the name of the variant with minimal BPF programs at these sites.
    sites: BTreeMap<&'static str, Vec<ProbeSite>>,
    modes: Vec<Mode>,
    left_out: Vec<LeftOut>,
}

/// Results of one mode of the victim.
#[derive(Debug, Serialize)]
struct Mode {
    name: &'static str,
    /// Indices of the victim's processors, separated by commas.
    processors: String,
    variants: Vec<Variant>,
}

/// Results of one variant.
#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Nanoseconds per pair in each round.
    ns: Vec<f64>,
    #[serde(flatten)]
    spread: Spread,
    /// Median, divided by the median of the minimal BPF programs ([`Kind::floor`]).
    to_floor: Option<f64>,
    /// Median, divided by the median of the untraced victim.
    to_bare: Option<f64>,
    /// Number of lost events (`lost`), and depth of the stack with the most allocations (`frames`), if the tracer is
    /// memtrace.
    lost: Option<u64>,
    frames: Option<usize>,
}

/// Variant that was not measured.
#[derive(Debug, Serialize)]
struct LeftOut {
    name: &'static str,
    reason: String,
}

/// Measures all variants in all modes.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Overhead> {
    let scratch = Scratch::new();
    let (kinds, left_out) = available_kinds(options)?;
    let mut overhead = Overhead {
        benchmark: "overhead",
        machine: Machine::current(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        sites: BTreeMap::new(),
        modes: Vec::new(),
        left_out,
    };
    for name in MODES {
        let processors = if name == "threads" { processors.all() } else { processors.one() };
        let mut victims = Vec::new();
        for &kind in &kinds {
            eprintln!("    {name}: {}", kind.name());
            // One library for each variant, so that no variant executes the probes of another.
            let folder = scratch.subdirectory(&format!("{name}-{}", kind.name()));
            let libc = match &options.libc {
                Some(source) => LibcCopy::make_from(source, folder)?,
                None => LibcCopy::make(folder)?,
            };
            let floor = kind.floor().name();
            let sites = overhead.sites.get(floor).map(Vec::as_slice).unwrap_or_default();
            let victim = TracedVictim::start(kind, &libc, name, &processors, options, sites)
                .with_context(|| format!("cannot measure {}", kind.name()))?;
            if let Some(sites) = victim.sites_of_floor()? {
                overhead.sites.entry(floor).or_insert(sites);
            }
            victims.push(victim);
        }
        let measured = victim::measure_in_turn(&mut victims, WARM_UP, options, TracedVictim::work);
        let variants = summarize(victims, measured)?;
        overhead.modes.push(Mode { name, processors, variants });
    }
    Ok(overhead)
}

/// Returns the variants that this machine can measure, and the variants that it cannot. A variant with minimal BPF
/// programs comes after the variant that has the same probe sites, because it needs these sites.
fn available_kinds(options: &Options) -> Result<(Vec<Kind>, Vec<LeftOut>)> {
    let mut kinds = vec![
        Kind::WithoutStacks,
        Kind::AtReturn,
        Kind::Threads,
        Kind::Bare,
        Kind::Floor,
        Kind::WithStacks,
        Kind::ReturnFloor,
        Kind::AtReturnWithoutStacks,
        Kind::ThreadsFloor,
    ];
    let mut left_out = Vec::new();
    let mut add = |kind: Kind, is_available: bool, reason: &str| {
        if is_available {
            kinds.push(kind);
        } else {
            left_out.push(LeftOut { name: kind.name(), reason: reason.to_owned() });
        }
    };
    let has_site_option = memtrace::has_option(&options.memtrace, variant::SITE_OPTION)?;
    add(Kind::AtEntry, has_site_option, "this memtrace has no option for it");
    add(Kind::Bpftrace, bpftrace::find().is_some(), "bpftrace is not installed");
    add(Kind::Heaptrack, heaptrack::is_installed(), "heaptrack is not installed");
    Ok((kinds, left_out))
}

fn summarize(victims: Vec<TracedVictim>, measured: Vec<Vec<f64>>) -> Result<Vec<Variant>> {
    let mut variants = Vec::new();
    let kinds: Vec<_> = victims.iter().map(TracedVictim::kind).collect();
    // End all victims first, so that their tracers wait for RCU grace periods at the same time.
    let tracers: Vec<_> = victims.into_iter().map(TracedVictim::end_victim).collect();
    for (tracer, ns) in tracers.into_iter().zip(measured) {
        let name = tracer.name();
        let report = tracer.finish().with_context(|| format!("{name} failed"))?;
        let spread = Spread::new(ns.iter().copied());
        let (lost, frames) = report.map(|report| (report.total_losses(), usual_depth(&report))).unzip();
        variants.push(Variant { name, ns, spread, to_floor: None, to_bare: None, lost, frames });
    }
    let median = |kind: Kind| variants.iter().find(|v| v.name == kind.name()).map(|v| v.spread.median);
    let bare = median(Kind::Bare);
    let floors: Vec<_> = kinds.iter().map(|kind| median(kind.floor())).collect();
    for (variant, floor) in variants.iter_mut().zip(floors) {
        variant.to_floor = floor.map(|floor| variant.spread.median / floor);
        variant.to_bare = bare.map(|bare| variant.spread.median / bare);
    }
    check_depths(&variants);
    Ok(variants)
}

/// Returns the depth of the stack with the most allocations.
pub(crate) fn usual_depth(report: &Report) -> usize {
    report.stacks.iter().max_by_key(|stack| stack.totals.alloc_count).map_or(0, harness::report::Stack::depth)
}

/// Prints a warning for each variant with another stack depth than [`victim::FRAMES`]: its cost is not comparable.
fn check_depths(variants: &[Variant]) {
    let without_stacks = [Kind::WithoutStacks, Kind::AtReturnWithoutStacks].map(Kind::name);
    for variant in variants.iter().filter(|variant| !without_stacks.contains(&variant.name)) {
        if let Some(frames) = variant.frames.filter(|&frames| frames != victim::FRAMES) {
            eprintln!("warning: the stacks of {} have {frames} frames, not {}", variant.name, victim::FRAMES);
        }
    }
}
