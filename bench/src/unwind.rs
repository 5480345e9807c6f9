//! Measures the time per stack, by stack depth: memtrace's walk by unwind tables, compared with the kernel's walk by
//! frame pointers.
//!
//! memtrace's time is the time of the whole BPF program at malloc's return: the walk, the hash of the frames, the
//! lookup among the stacks that were sent, and the event of the block. The victim of this variant has no frame
//! pointers. The kernel's time is the time of a BPF program that only calls `bpf_get_stack`. The victim of this variant
//! has the same source, compiled with frame pointers. memtrace's reports, and the map of the second BPF program, verify
//! that all stacks had the intended depth.

mod run_time;
mod variant;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use aya::sys::{Stats, enable_stats};
use harness::{Report, Scratch};
use serde::Serialize;
use variant::{Kind, TracedVictim};

use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::options::Options;
use crate::overhead::usual_depth;
use crate::probes::ProbeSite;
use crate::processors::Processors;
use crate::statistics::Spread;

/// Measured stack depths, in frames.
const DEPTHS: [usize; 4] = [5, 10, 20, 50];

/// Number of pairs in a run before the measurement: enough to estimate the number of pairs per slice, and to send each
/// stack once.
const WARM_UP: u64 = 5_000;

/// Variants in the order of the measurement. memtrace is first, because the minimal BPF programs need memtrace's probe
/// sites.
const KINDS: [Kind; 5] = [Kind::Tables, Kind::Cold, Kind::Helper, Kind::WithoutStacks, Kind::Empty];

#[derive(Debug, Serialize)]
pub(crate) struct Unwind {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    /// Probe sites of memtrace in malloc and free. The kernel times the BPF program at malloc's return.
    sites: Vec<ProbeSite>,
    depths: Vec<Depth>,
}

/// Results of one stack depth.
#[derive(Debug, Serialize)]
struct Depth {
    frames: usize,
    variants: Vec<Variant>,
    /// Run time of memtrace's BPF program, divided by the run time of the BPF program with `bpf_get_stack` in the same
    /// round.
    ratio: Spread,
    /// Same as `ratio`, but only for the stacks: the run time of the BPF program without stacks is first subtracted
    /// from each of the two times.
    ratio_of_stacks: Spread,
}

#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Nanoseconds per run of the BPF program, from the kernel's statistics.
    program_ns: Spread,
    /// Nanoseconds per pair of malloc and free with all probes, from the victim's clock.
    pair_ns: Spread,
}

/// Times of one variant in one round.
#[derive(Clone, Copy, Debug)]
struct Times {
    program_ns: f64,
    pair_ns: f64,
}

/// Measures all variants at all depths.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Unwind> {
    // The kernel times BPF programs while this descriptor is open.
    let _statistics = enable_stats(Stats::RunTime).context("cannot time BPF programs")?;
    let scratch = Scratch::new();
    let starter = Starter { scratch: &scratch, options, processors };
    let (sites, outer_frames) = find_outer_frames(&starter)?;
    let mut victims = Vec::new();
    for kind in KINDS {
        eprintln!("    {}", kind.name());
        let outer = outer_frames.get(&kind.depth_reference()).context("the depth of its stacks was not measured")?;
        victims.push((starter.start(kind, "measured", &sites)?, *outer));
    }
    let measured = measure(&mut victims, options)?;
    let tracers: Vec<_> = victims.into_iter().map(|(victim, _)| victim.end_victim()).collect();
    for tracer in tracers {
        let (kind, pairs) = (tracer.kind(), tracer.pairs().clone());
        if let Some(report) = tracer.finish().with_context(|| format!("{} failed", kind.name()))? {
            let outer = outer_frames.get(&kind).copied();
            check(kind, outer, &pairs, &report).with_context(|| format!("{} is not comparable", kind.name()))?;
        }
    }
    Ok(Unwind {
        benchmark: "unwind",
        machine: Machine::current(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        sites,
        depths: DEPTHS.into_iter().zip(measured).map(|(frames, measured)| summarize(frames, &measured)).collect(),
    })
}

/// Runs each victim once with one nested function. Returns memtrace's probe sites, and the number of frames outside the
/// nested functions.
fn find_outer_frames(starter: &Starter<'_>) -> Result<(Vec<ProbeSite>, BTreeMap<Kind, usize>)> {
    eprintln!("    measuring the depth of the stacks");
    let (mut sites, mut outer_frames, mut victims) = (Vec::new(), BTreeMap::new(), Vec::new());
    for kind in KINDS.into_iter().filter(|kind| kind.depth_reference() == *kind) {
        let mut victim = starter.start(kind, "trial", &sites)?;
        victim.work(1, WARM_UP)?;
        if sites.is_empty() {
            sites = victim.probe_sites()?;
        }
        outer_frames.extend(victim.frame_count()?.map(|frames| (kind, frames)));
        victims.push(victim);
    }
    let tracers: Vec<_> = victims.into_iter().map(TracedVictim::end_victim).collect();
    for tracer in tracers {
        let kind = tracer.kind();
        outer_frames.extend(tracer.finish()?.map(|report| (kind, usual_depth(&report))));
    }
    for (kind, frames) in &mut outer_frames {
        *frames = frames.checked_sub(1).with_context(|| format!("{} has no stack", kind.name()))?;
    }
    Ok((sites, outer_frames))
}

struct Starter<'run> {
    scratch: &'run Scratch,
    options: &'run Options,
    processors: &'run Processors,
}

impl Starter<'_> {
    fn start(&self, kind: Kind, purpose: &str, sites: &[ProbeSite]) -> Result<TracedVictim> {
        // One library for each variant, so that no variant executes the probes of another.
        let libc = LibcCopy::make(self.scratch.subdirectory(&format!("{}-{purpose}", kind.name())))?;
        TracedVictim::start(kind, &libc, &self.processors.one(), self.options, sites)
            .with_context(|| format!("cannot measure {}", kind.name()))
    }
}

/// Returns the times, by depth, variant and round. Each round measures all variants at one depth before the next depth,
/// so that measurements that are compared are close in time.
fn measure(victims: &mut [(TracedVictim, usize)], options: &Options) -> Result<Vec<Vec<Vec<Times>>>> {
    let mut measured = vec![vec![Vec::new(); victims.len()]; DEPTHS.len()];
    let mut pairs = Vec::new();
    for frames in DEPTHS {
        for (victim, outer) in victims.iter_mut() {
            let nested = frames.checked_sub(*outer).with_context(|| format!("{outer} outer frames exceed {frames}"))?;
            // The first run is slower.
            victim.work(nested, WARM_UP)?;
            pairs.push((nested, victim.work(nested, WARM_UP)?.0.pairs_in(options.slice).max(WARM_UP / 10)));
        }
    }
    for round in 0..options.rounds {
        eprintln!("    round {} of {}", round + 1, options.rounds);
        let mut pairs = pairs.iter();
        for (frames, measured) in DEPTHS.iter().zip(&mut measured) {
            for ((victim, _), measured) in victims.iter_mut().zip(measured) {
                let &(nested, pairs) = pairs.next().context("a variant has no number of pairs")?;
                let (timing, run_time) = victim.work(nested, pairs)?;
                if let Some(actual) = victim.frame_count()?.filter(|actual| actual != frames) {
                    bail!("bpf_get_stack returned {actual} frames, not {frames}");
                }
                measured.push(Times { program_ns: run_time.ns_per_run(), pair_ns: timing.ns_per_pair() });
            }
        }
    }
    Ok(measured)
}

/// Summarizes the rounds at one depth. `measured` is in the order of [`KINDS`].
fn summarize(frames: usize, measured: &[Vec<Times>]) -> Depth {
    let program_ns = |kind: Kind| {
        let rounds = KINDS.iter().zip(measured).find(|(other, _)| **other == kind);
        rounds.map_or(&[][..], |(_, rounds)| rounds).iter().map(|times| times.program_ns)
    };
    let (tables, helper) = (|| program_ns(Kind::Tables), || program_ns(Kind::Helper));
    let stacks = tables().zip(program_ns(Kind::WithoutStacks)).map(|(tables, without)| tables - without);
    let helper_stacks = helper().zip(program_ns(Kind::Empty)).map(|(helper, empty)| helper - empty);
    Depth {
        frames,
        variants: KINDS
            .iter()
            .zip(measured)
            .map(|(kind, rounds)| Variant {
                name: kind.name(),
                program_ns: Spread::new(rounds.iter().map(|times| times.program_ns)),
                pair_ns: Spread::new(rounds.iter().map(|times| times.pair_ns)),
            })
            .collect(),
        ratio: Spread::new(tables().zip(helper()).map(|(tables, helper)| tables / helper)),
        ratio_of_stacks: Spread::new(stacks.zip(helper_stacks).map(|(tables, helper)| tables / helper)),
    }
}

/// Fails if the stacks in a report have other depths or another stack end than expected: their cost would not be
/// comparable. `pairs` are the victim's pairs, by number of nested functions. Each stack has `outer` further frames.
fn check(kind: Kind, outer: Option<usize>, pairs: &BTreeMap<usize, u64>, report: &Report) -> Result<()> {
    let mut actual = BTreeMap::new();
    for stack in &report.stacks {
        if stack.end != kind.stack_end() {
            bail!("{} of its stacks ended as {:?}, not as {:?}", stack.totals.alloc_count, stack.end, kind.stack_end());
        }
        *actual.entry(stack.depth()).or_insert(0) += stack.totals.alloc_count;
    }
    let expected = match outer {
        Some(outer) => pairs.iter().map(|(nested, pairs)| (nested + outer, *pairs)).collect(),
        None => BTreeMap::from([(0, pairs.values().sum())]),
    };
    if actual != expected {
        let lost = report.total_losses();
        bail!("allocations by stack depth are {actual:?}, not {expected:?}; {lost} were lost");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use harness::Totals;
    use harness::report::{Frame, Stack};

    use super::*;

    #[test]
    fn ratios_compare_times_of_the_same_round() {
        let rounds = |ns: &[f64]| ns.iter().map(|&ns| Times { program_ns: ns, pair_ns: 2.0 * ns }).collect::<Vec<_>>();
        // The machine was twice as slow in the last round.
        let rounds = [
            rounds(&[900.0, 900.0, 1800.0]),
            rounds(&[2000.0, 2000.0, 4000.0]),
            rounds(&[600.0, 600.0, 1200.0]),
            rounds(&[300.0, 300.0, 600.0]),
            rounds(&[200.0, 200.0, 400.0]),
        ];
        let depth = summarize(5, &rounds);
        assert_eq!(depth.ratio, Spread { median: 1.5, min: 1.5, max: 1.5 });
        assert_eq!(depth.ratio_of_stacks, Spread { median: 1.5, min: 1.5, max: 1.5 });
        assert_eq!(depth.variants[1].program_ns, Spread { median: 2000.0, min: 2000.0, max: 4000.0 });
        assert_eq!(depth.variants[1].pair_ns.median, 4000.0);
    }

    fn report(stacks: &[(&str, usize, u64)]) -> Report {
        let stack = |&(end, depth, alloc_count): &(&str, usize, u64)| {
            let inlined = Arc::new(Frame { inlined: true, ..Frame::default() });
            let frames = std::iter::repeat_n(Arc::new(Frame::default()), depth).chain([inlined]).collect();
            let totals = Totals { alloc_count, ..Totals::default() };
            let mut stack = Stack { frames, totals, ..Stack::default() };
            stack.content.end = end.to_owned().into();
            stack
        };
        Report { stacks: stacks.iter().map(stack).collect(), ..Report::default() }
    }

    #[test]
    fn check_requires_the_expected_stack_for_each_allocation() {
        let pairs = BTreeMap::from([(1, 100), (6, 50)]);
        let right = report(&[("complete", 5, 60), ("complete", 10, 50), ("complete", 5, 40)]);
        check(Kind::Tables, Some(4), &pairs, &right).unwrap();
        for wrong in [
            &[("complete", 5, 100), ("complete", 10, 49)][..],
            &[("complete", 5, 100), ("complete", 10, 50), ("complete", 9, 1)],
            &[("complete", 5, 100), ("generated", 10, 50)],
        ] {
            assert!(check(Kind::Tables, Some(4), &pairs, &report(wrong)).is_err(), "{wrong:?}");
        }
        check(Kind::WithoutStacks, None, &pairs, &report(&[("not_taken", 0, 150)])).unwrap();
        assert!(check(Kind::WithoutStacks, None, &pairs, &right).is_err());
    }
}
