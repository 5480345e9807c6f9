//! Heap profiles that Go programs write themselves, in the text format of `runtime/pprof`, and their comparison with reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Report;

/// Functions of a stack, from root to leaf.
pub type Chain = Vec<String>;

/// Sampled blocks of one size and one stack. Several of them can have the same functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub alloc_blocks: u64,
    pub alloc_bytes: u64,
}

/// Heap profile of a program.
pub struct GoProfile {
    /// Mean number of bytes from one sample to the next.
    pub interval: u64,
    pub stacks: BTreeMap<Chain, Vec<Samples>>,
}

/// Estimate of the live memory of a stack, or of its change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub bytes: f64,
    pub blocks: f64,
    /// Maximum difference to a sum of numbers that are rounded to whole bytes and blocks.
    pub rounding: f64,
}

/// Numbers of a stack in a report of memtrace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reported {
    /// Number of sampled blocks that are live or held at exit.
    pub samples: u64,
    pub held_bytes: u64,
    pub held_blocks: u64,
    pub alloc_bytes: u64,
}

impl GoProfile {
    /// Reads a profile in the text format: `pprof.Lookup("heap").WriteTo(file, 1)`.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the program has written its profile");
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        // The format has twice the interval, as the format of the C++ profiler has.
        let twice = header.rsplit('/').next().and_then(|number| number.parse::<u64>().ok());
        let twice = twice.expect("the header ends with the interval");
        let mut stacks: BTreeMap<Chain, Vec<Samples>> = BTreeMap::new();
        let mut record: Option<(Samples, Chain)> = None;
        for line in lines.take_while(|line| !line.starts_with("# runtime.MemStats")) {
            if let Some(frame) = line.strip_prefix("#\t") {
                let (_, functions) = record.as_mut().expect("a record precedes its frames");
                let name = frame.split_whitespace().nth(1).and_then(|name| name.rsplit_once("+0x"));
                functions.push(name.expect("a function with an offset").0.to_owned());
            } else if line.contains(" @") {
                add(&mut stacks, record.replace((samples(line), Vec::new())));
            }
        }
        add(&mut stacks, record);
        Self { interval: twice / 2, stacks }
    }

    /// Returns the estimate of the bytes and blocks that `samples` sampled blocks with a total size of `bytes` stand for, as
    /// `scaleHeapSample` of `runtime/pprof` computes it.
    #[must_use]
    fn estimate(&self, samples: u64, bytes: u64) -> [f64; 2] {
        if samples == 0 {
            return [0.0; 2];
        }
        let [samples, bytes] = [samples, bytes].map(|number| number as f64);
        let scale =
            if self.interval <= 1 { 1.0 } else { 1.0 / (1.0 - (-(bytes / samples) / self.interval as f64).exp()) };
        [bytes * scale, samples * scale]
    }

    /// Returns the estimates of the live memory by stack.
    #[must_use]
    pub fn live(&self) -> BTreeMap<Chain, Estimate> {
        let live = |samples: &Vec<Samples>| {
            let of = samples.iter().map(|samples| self.estimate(samples.live_blocks, samples.live_bytes));
            let [bytes, blocks] = of.fold([0.0; 2], |[bytes, blocks], [more, others]| [bytes + more, blocks + others]);
            // A bucket is rounded twice: its allocations and its frees.
            Estimate { bytes, blocks, rounding: 2.0 * samples.len() as f64 }
        };
        self.stacks.iter().map(|(chain, samples)| (chain.clone(), live(samples))).collect()
    }

    /// Returns the estimate of all live memory.
    #[must_use]
    pub fn live_total(&self) -> Estimate {
        self.live().into_values().fold(Estimate::default(), Estimate::plus)
    }

    /// Returns the changes of the live memory by stack since an earlier profile.
    #[must_use]
    pub fn growth_since(&self, earlier: &Self) -> BTreeMap<Chain, Estimate> {
        let mut growth = self.live();
        for (chain, before) in earlier.live() {
            let after = growth.remove(&chain).unwrap_or_default();
            let negative = Estimate { bytes: -before.bytes, blocks: -before.blocks, rounding: before.rounding };
            growth.insert(chain, after.plus(negative));
        }
        growth
    }

    /// Asserts that the live blocks, or the blocks held at exit, of the process `pid` are the same in the report and in
    /// the profile: the same samples for each stack, and the same estimates up to the rounding to whole bytes and
    /// blocks.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn assert_held(&self, report: &Report, process: usize) {
        self.check_held(report, process).unwrap_or_else(|difference| panic!("{difference}"));
    }

    /// Compares the live blocks as [`Self::assert_held`] does.
    ///
    /// # Errors
    ///
    /// If they differ: a description of the first difference.
    fn check_held(&self, report: &Report, process: usize) -> Result<(), String> {
        let reported = reported(report, process);
        let held = |samples: &Vec<Samples>| samples.iter().map(|samples| samples.live_blocks).sum::<u64>();
        let expected: BTreeMap<_, _> =
            self.stacks.iter().map(|(chain, samples)| (chain, held(samples))).filter(|(_, count)| *count > 0).collect();
        let found: BTreeMap<_, _> =
            reported.iter().map(|(chain, numbers)| (chain, numbers.samples)).filter(|(_, count)| *count > 0).collect();
        if found != expected {
            return Err(format!("the samples of the stacks are {found:#?}, not {expected:#?}"));
        }
        let held = |numbers: &Reported| [numbers.held_bytes as f64, numbers.held_blocks as f64];
        // Blocks of C code are in the report only.
        let own = reported.iter().filter(|(chain, _)| self.stacks.contains_key(*chain));
        check(&self.live(), &own.map(|(chain, numbers)| (chain.clone(), held(numbers))).collect())
    }
}

impl Estimate {
    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            blocks: self.blocks + other.blocks,
            rounding: self.rounding + other.rounding,
        }
    }

    /// Returns true if rounded bytes and blocks equal the estimate.
    #[must_use]
    pub fn is_of(&self, [bytes, blocks]: [f64; 2]) -> bool {
        (bytes - self.bytes).abs() <= self.rounding && (blocks - self.blocks).abs() <= self.rounding
    }
}

/// Compares estimates with the bytes and blocks that were found, by stack. A stack that is missing has no memory.
///
/// # Errors
///
/// If a stack differs by more than the rounding: its estimate and its numbers.
pub fn check(expected: &BTreeMap<Chain, Estimate>, found: &BTreeMap<Chain, [f64; 2]>) -> Result<(), String> {
    let chains: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for chain in chains {
        let estimate = expected.get(chain).copied().unwrap_or_default();
        let numbers = found.get(chain).copied().unwrap_or_default();
        if !estimate.is_of(numbers) {
            return Err(format!("{chain:?} has {numbers:?} bytes and blocks, not {estimate:?}"));
        }
    }
    Ok(())
}

/// Returns the functions of a stack, which are given from root to leaf, as `runtime/pprof` writes them: without the frames of the
/// runtime at the leaf, and without `runtime.goexit`.
pub fn chain<'a>(names: impl IntoIterator<Item = &'a str>) -> Chain {
    let names = names.into_iter().filter(|name| !name.starts_with("runtime.goexit"));
    let mut chain: Chain = names.map(String::from).collect();
    let is_of_runtime = |name: &String| name.starts_with("runtime.");
    if !chain.iter().all(is_of_runtime) {
        chain.truncate(chain.len() - chain.iter().rev().take_while(|name| is_of_runtime(name)).count());
    }
    chain
}

/// Returns the numbers of a process by the [`chain`] of its stacks.
#[must_use]
pub fn reported(report: &Report, process: usize) -> BTreeMap<Chain, Reported> {
    let mut all: BTreeMap<Chain, Reported> = BTreeMap::new();
    for stack in report.stacks.iter().filter(|stack| stack.process == process) {
        let numbers = all.entry(chain(stack.names())).or_default();
        numbers.samples += stack.content.totals.samples.unwrap_or_default();
        numbers.held_bytes += stack.totals.live_bytes + stack.totals.exit_bytes;
        numbers.held_blocks += stack.totals.live_count + stack.totals.exit_count;
        numbers.alloc_bytes += stack.totals.alloc_bytes;
    }
    all
}

/// Parses `1: 1024 [3: 3072] @ 0x46b5ba 0x46b6f1`.
fn samples(line: &str) -> Samples {
    let numbers = line.split('@').next().unwrap_or_default();
    let mut numbers = numbers.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).expect("a record has four numbers");
    Samples { live_blocks: next(), live_bytes: next(), alloc_blocks: next(), alloc_bytes: next() }
}

fn add(stacks: &mut BTreeMap<Chain, Vec<Samples>>, record: Option<(Samples, Chain)>) {
    if let Some((samples, mut functions)) = record {
        // The text has the leaf first.
        functions.reverse();
        stacks.entry(functions).or_default().push(samples);
    }
}
