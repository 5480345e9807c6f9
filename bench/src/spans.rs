//! Measures the time per span of a thread's activity: tasks, events, locks and calls of a function, untraced and
//! traced; and the time of a computation while memtrace traces waits.
//!
//! The floor has empty BPF programs at memtrace's probe sites. The uretprobe floor has a uretprobe in place of the
//! probes at a function's return instructions. The victim allocates nothing.

mod variant;

use anyhow::{Context as _, Result};
use harness::Scratch;
use serde::Serialize;
use variant::{Kind, SpanKind, TracedVictim};

use crate::machine::Machine;
use crate::options::Options;
use crate::probes::ProbeSite;
use crate::processors::Processors;
use crate::statistics::Spread;
use crate::victim;

/// Number of spans in a run before the measurement: enough to estimate the number of spans per slice.
const WARM_UP: u64 = 5_000;

#[derive(Debug, Serialize)]
pub(crate) struct Spans {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    slice_ms: u128,
    kinds: Vec<Measured>,
}

/// Results of one kind of span.
#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    /// Probe sites of memtrace.
    sites: Vec<ProbeSite>,
    variants: Vec<Variant>,
}

/// Results of one variant.
#[derive(Debug, Serialize)]
struct Variant {
    name: &'static str,
    /// Nanoseconds per span in each round.
    ns: Vec<f64>,
    #[serde(flatten)]
    spread: Spread,
    /// Increase of the median over the untraced victim, divided by the increase of the floor.
    to_floor: Option<f64>,
    /// Number of lost events, if the tracer is memtrace.
    lost: Option<u64>,
}

/// Measures all kinds of spans.
pub(crate) fn run(options: &Options, processors: &Processors) -> Result<Spans> {
    let scratch = Scratch::new();
    let measured = SpanKind::ALL.into_iter().map(|kind| measure(kind, options, processors, &scratch));
    Ok(Spans {
        benchmark: "spans",
        machine: Machine::current(),
        rounds: options.rounds,
        slice_ms: options.slice.as_millis(),
        kinds: measured.collect::<Result<_>>()?,
    })
}

fn measure(span: SpanKind, options: &Options, processors: &Processors, scratch: &Scratch) -> Result<Measured> {
    let (mut sites, mut victims) = (Vec::new(), Vec::new());
    for &kind in span.variants() {
        eprintln!("    {}: {}", span.name(), kind.name());
        let folder = scratch.subdirectory(&format!("{}-{}", span.name(), kind.name()));
        let victim = TracedVictim::start(kind, span, &folder, &processors.one(), options, &sites)
            .with_context(|| format!("cannot measure {}", kind.name()))?;
        if kind == Kind::Memtrace {
            sites = victim.probe_sites()?;
        }
        victims.push(victim);
    }
    let ns = victim::measure_in_turn(&mut victims, WARM_UP, options, TracedVictim::work);
    let mut variants = Vec::new();
    let tracers: Vec<_> = victims.into_iter().map(TracedVictim::end_victim).collect();
    for (tracer, ns) in tracers.into_iter().zip(ns) {
        let name = tracer.name();
        let lost = tracer.finish().with_context(|| format!("{name} failed"))?;
        let spread = Spread::new(ns.iter().copied());
        variants.push(Variant { name, ns, spread, to_floor: None, lost });
    }
    let median = |kind: Kind| variants.iter().find(|v| v.name == kind.name()).map(|v| v.spread.median);
    if let (Some(bare), Some(floor)) = (median(Kind::Bare), median(Kind::Floor)) {
        for variant in variants.iter_mut().filter(|variant| variant.name != Kind::Bare.name()) {
            variant.to_floor = Some((variant.spread.median - bare) / (floor - bare));
        }
    }
    Ok(Measured { name: span.name(), sites, variants })
}
