//! What a stack takes, by its depth: memtrace's walk by unwind tables beside the kernel's own along frame pointers.
//!
//! The one is all that memtrace does at malloc's return, of a victim that is compiled without frame pointers: walk, hash
//! the frames, look the stack up among those sent, and tell of the block. The other is `bpf_get_stack` in a program that
//! does nothing else, of the same victim compiled with frame pointers. Whether every stack had the frames that it was to
//! have, memtrace's reports must say, and of its own the helper.

mod program;
mod variant;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use aya::sys::{Stats, enable_stats};
use serde::Serialize;
use variant::{Kind, Running};

use crate::libc_copy::LibcCopy;
use crate::machine::Machine;
use crate::memtrace::Report;
use crate::options::Options;
use crate::probes::Site;
use crate::processors::Processors;
use crate::scratch::Scratch;
use crate::statistics::Spread;

/// How many frames the stacks have.
const DEPTHS: [usize; 4] = [5, 10, 20, 50];

/// How many pairs a variant does at each depth before it is measured, twice: enough for a guess at how many it can do in a
/// slice, and for each of its stacks to have been sent.
const WARM_UP: u64 = 5_000;

/// The variants; memtrace is first, since its probes' sites are those of the empty programs.
const KINDS: [Kind; 5] = [Kind::Tables, Kind::Cold, Kind::Helper, Kind::WithoutStacks, Kind::Empty];

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Unwind {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    /// Where memtrace has probed malloc and free; what is timed is the program at malloc's return.
    sites: Vec<Site>,
    depths: Vec<Depth>,
}

/// Stacks of one depth.
#[derive(Debug, Serialize)]
struct Depth {
    frames: usize,
    variants: Vec<Variant>,
    /// What memtrace's program took by tables, with all that it does, against `bpf_get_stack` in a program that does
    /// nothing else, round by round.
    ratio: Spread,
    /// As `ratio`, each less what its like took in the same round that took no stack: memtrace's program without stacks,
    /// and an empty one.
    ratio_of_stacks: Spread,
}

/// One way to take stacks.
#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Nanoseconds that the program took in a run, by the kernel's account.
    program_ns: Spread,
    /// Nanoseconds that a pair of malloc and free took, by the victim's clock, all probes included.
    pair_ns: Spread,
}

/// What a variant took in a round.
#[derive(Clone, Copy, Debug)]
struct Took {
    program_ns: f64,
    pair_ns: f64,
}

/// Measures every variant at every depth.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Unwind> {
    // The kernel times programs as long as this is open.
    let _account =
        enable_stats(Stats::RunTime).context("the kernel does not time programs; it does since Linux 5.8")?;
    let scratch = Scratch::new()?;
    let starter = Starter { scratch: &scratch, options, processors };
    let (sites, around) = try_out(&starter)?;
    let mut running = Vec::new();
    for kind in KINDS {
        eprintln!("    {}", kind.name());
        let around = around.get(&kind.seen_by()).context("it was not tried")?;
        running.push((starter.start(kind, "measured", &sites)?, *around));
    }
    let measured = measure(&mut running, options)?;
    let mut ended = Vec::new();
    for (running, _) in running {
        ended.push(running.end_target()?);
    }
    for ended in ended {
        let (kind, told) = (ended.kind(), ended.told().clone());
        if let Some(report) = ended.finish().with_context(|| format!("{} did not end well", kind.name()))? {
            let around = around.get(&kind).copied();
            check(kind, around, &told, &report).with_context(|| format!("{} is not comparable", kind.name()))?;
        }
    }
    Ok(Unwind {
        benchmark: "unwind",
        machine: Machine::this(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        sites,
        depths: DEPTHS.into_iter().zip(measured).map(|(frames, measured)| conclude(frames, &measured)).collect(),
    })
}

/// Where memtrace has its probes, and how many frames are around the victims' own functions, which is found out by trying.
fn try_out(starter: &Starter<'_>) -> Result<(Vec<Site>, BTreeMap<Kind, usize>)> {
    eprintln!("    trying how deep the stacks are");
    let (mut sites, mut around, mut tried) = (Vec::new(), BTreeMap::new(), Vec::new());
    for kind in KINDS.into_iter().filter(|kind| kind.seen_by() == *kind) {
        let mut running = starter.start(kind, "trial", &sites)?;
        running.work(1, WARM_UP)?;
        if sites.is_empty() {
            sites = running.sites()?;
        }
        around.extend(running.frames()?.map(|frames| (kind, frames)));
        tried.push(running);
    }
    for ended in tried.into_iter().map(Running::end_target).collect::<Result<Vec<_>>>()? {
        let kind = ended.kind();
        around.extend(ended.finish()?.map(|report| (kind, report.frames())));
    }
    for (kind, frames) in &mut around {
        *frames = frames.checked_sub(1).with_context(|| format!("{} has taken no stack", kind.name()))?;
    }
    Ok((sites, around))
}

/// What variants are started with.
struct Starter<'run> {
    scratch: &'run Scratch,
    options: &'run Options,
    processors: &'run Processors,
}

impl Starter<'_> {
    fn start(&self, kind: Kind, purpose: &str, sites: &[Site]) -> Result<Running> {
        // A library each: what one variant has placed in it, no other passes.
        let libc = LibcCopy::make(self.scratch.folder(&format!("{}-{purpose}", kind.name()))?)?;
        Running::start(kind, &libc, &self.processors.one(), self.options, sites)
            .with_context(|| format!("{} cannot be measured", kind.name()))
    }
}

/// What each variant took at each depth in each round: by depth, by variant, by round. In each round every variant has its
/// turn at a depth before the next depth's turn, so that those which are compared are measured side by side.
fn measure(running: &mut [(Running, usize)], options: &Options) -> Result<Vec<Vec<Vec<Took>>>> {
    let mut measured = vec![vec![Vec::new(); running.len()]; DEPTHS.len()];
    let mut pairs = Vec::new();
    for frames in DEPTHS {
        for (variant, around) in running.iter_mut() {
            let deeper =
                frames.checked_sub(*around).with_context(|| format!("{around} frames are around the victim's"))?;
            // What is done for the first time takes longer.
            variant.work(deeper, WARM_UP)?;
            pairs.push((deeper, variant.work(deeper, WARM_UP)?.0.pairs_in(options.slice).max(WARM_UP / 10)));
        }
    }
    for round in 0..options.rounds {
        eprintln!("    round {} of {}", round + 1, options.rounds);
        let mut pairs = pairs.iter();
        for (frames, measured) in DEPTHS.iter().zip(&mut measured) {
            for ((variant, _), measured) in running.iter_mut().zip(measured) {
                let &(deeper, pairs) = pairs.next().context("a variant has no number of pairs")?;
                let (work, program) = variant.work(deeper, pairs)?;
                if let Some(found) = variant.frames()?.filter(|found| found != frames) {
                    bail!("bpf_get_stack gave {found} frames, not {frames}");
                }
                measured.push(Took { program_ns: program.ns_a_run(), pair_ns: work.ns_a_pair() });
            }
        }
    }
    Ok(measured)
}

/// What the rounds at one depth say; `measured` is in the order of [`KINDS`].
fn conclude(frames: usize, measured: &[Vec<Took>]) -> Depth {
    let of = |kind: Kind| {
        let rounds = KINDS.iter().zip(measured).find(|(known, _)| **known == kind);
        rounds.map_or(&[][..], |(_, rounds)| rounds).iter().map(|took| took.program_ns)
    };
    let stacks = of(Kind::Tables).zip(of(Kind::WithoutStacks)).map(|(tables, without)| tables - without);
    let helpers = of(Kind::Helper).zip(of(Kind::Empty)).map(|(helper, empty)| helper - empty);
    Depth {
        frames,
        variants: KINDS
            .iter()
            .zip(measured)
            .map(|(kind, rounds)| Variant {
                name: kind.name(),
                program_ns: Spread::of(rounds.iter().map(|took| took.program_ns)),
                pair_ns: Spread::of(rounds.iter().map(|took| took.pair_ns)),
            })
            .collect(),
        ratio: Spread::of(of(Kind::Tables).zip(of(Kind::Helper)).map(|(tables, helper)| tables / helper)),
        ratio_of_stacks: Spread::of(stacks.zip(helpers).map(|(tables, helper)| tables / helper)),
    }
}

/// Holds a report against what the victim did: so many pairs in so many functions of its own, around which are `around`
/// frames more. Stacks of other depths, or taken in another way, would be other work.
fn check(kind: Kind, around: Option<usize>, told: &BTreeMap<usize, u64>, report: &Report) -> Result<()> {
    let mut seen = BTreeMap::new();
    for stack in &report.stacks {
        if stack.end != kind.end() {
            bail!("{} of its stacks ended as {:?}, not as {:?}", stack.alloc_count, stack.end, kind.end());
        }
        *seen.entry(report.frames_of(stack)).or_insert(0) += stack.alloc_count;
    }
    let expected = match around {
        Some(around) => told.iter().map(|(deeper, pairs)| (deeper + around, *pairs)).collect(),
        None => BTreeMap::from([(0, told.values().sum())]),
    };
    if seen != expected {
        bail!("allocations by the frames of their stacks are {seen:?}, not {expected:?}; {} were lost", report.lost());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let took = |ns: &[f64]| ns.iter().map(|&ns| Took { program_ns: ns, pair_ns: 2.0 * ns }).collect::<Vec<_>>();
        // The machine was twice as slow in the last round.
        let rounds = [
            took(&[900.0, 900.0, 1800.0]),
            took(&[2000.0, 2000.0, 4000.0]),
            took(&[600.0, 600.0, 1200.0]),
            took(&[300.0, 300.0, 600.0]),
            took(&[200.0, 200.0, 400.0]),
        ];
        let depth = conclude(5, &rounds);
        assert_eq!(depth.ratio, Spread { median: 1.5, min: 1.5, max: 1.5 });
        assert_eq!(depth.ratio_of_stacks, Spread { median: 1.5, min: 1.5, max: 1.5 });
        assert_eq!(depth.variants[1].program_ns, Spread { median: 2000.0, min: 2000.0, max: 4000.0 });
        assert_eq!(depth.variants[1].pair_ns.median, 4000.0);
    }

    fn report(stacks: &[(&str, usize, u64)]) -> Report {
        let stacks = stacks.iter().map(|&(end, frames, count)| {
            // What was inlined is no frame of the stack.
            let frames: Vec<_> = std::iter::repeat_n(0, frames).chain([1]).collect();
            json!({ "process": 0, "end": end, "frames": frames, "alloc_count": count, "alloc_bytes": 0 })
        });
        let stacks: Vec<_> = stacks.collect();
        serde_json::from_value(json!({
            "totals": { "alloc_count": 0 },
            "losses": { "ring_full_alloc": 2 },
            "processes": [{ "comm": "victim" }],
            "frames": [{ "inlined": false }, { "inlined": true }],
            "stacks": stacks,
        }))
        .unwrap()
    }

    #[test]
    fn every_allocation_must_have_the_stack_that_the_victim_gave_it() {
        let told = BTreeMap::from([(1, 100), (6, 50)]);
        let right = report(&[("complete", 5, 60), ("complete", 10, 50), ("complete", 5, 40)]);
        check(Kind::Tables, Some(4), &told, &right).unwrap();
        for wrong in [
            &[("complete", 5, 100), ("complete", 10, 49)][..],
            &[("complete", 5, 100), ("complete", 10, 50), ("complete", 9, 1)],
            &[("complete", 5, 100), ("frame_pointers", 10, 50)],
        ] {
            assert!(check(Kind::Tables, Some(4), &told, &report(wrong)).is_err(), "{wrong:?}");
        }
        check(Kind::WithoutStacks, None, &told, &report(&[("not_taken", 0, 150)])).unwrap();
        assert!(check(Kind::WithoutStacks, None, &told, &right).is_err());
    }
}
