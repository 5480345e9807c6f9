//! Heap profiles that Go programs write themselves, in the text format of `runtime/pprof`, and their comparison with reports.

use std::collections::BTreeMap;
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
        // The format has twice the interval, as that of the C++ profiler.
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

    /// Asserts that the live blocks, or those held at exit, of the process `pid` in the report are those of the profile: the
    /// same samples for each stack, and the same estimates up to the rounding to whole bytes and blocks.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn assert_held(&self, report: &Report, process: usize) {
        let reported = reported(report, process);
        let held = |samples: &Vec<Samples>| samples.iter().map(|samples| samples.live_blocks).sum::<u64>();
        let expected: BTreeMap<_, _> =
            self.stacks.iter().map(|(chain, samples)| (chain, held(samples))).filter(|(_, count)| *count > 0).collect();
        let found: BTreeMap<_, _> =
            reported.iter().map(|(chain, numbers)| (chain, numbers.samples)).filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, expected);
        for (chain, samples) in &self.stacks {
            let numbers = reported.get(chain).copied().unwrap_or_default();
            let of = samples.iter().map(|samples| self.estimate(samples.live_blocks, samples.live_bytes));
            let [bytes, blocks] = of.fold([0.0; 2], |[bytes, blocks], [more, others]| [bytes + more, blocks + others]);
            // A bucket is rounded twice: its allocations and its frees.
            let rounding = 2.0 * samples.len() as f64;
            assert!((numbers.held_bytes as f64 - bytes).abs() <= rounding, "{chain:?}: {numbers:?}, {bytes} bytes");
            assert!((numbers.held_blocks as f64 - blocks).abs() <= rounding, "{chain:?}: {numbers:?}, {blocks} blocks");
        }
    }
}

/// Returns the numbers of a process by the functions of its stacks, as `runtime/pprof` writes them: without the frames of the
/// runtime at the leaf, and without `runtime.goexit`.
#[must_use]
pub fn reported(report: &Report, process: usize) -> BTreeMap<Chain, Reported> {
    let mut all: BTreeMap<Chain, Reported> = BTreeMap::new();
    for stack in report.stacks.iter().filter(|stack| stack.process == process) {
        let names = stack.names().into_iter().filter(|name| !name.starts_with("runtime.goexit"));
        let mut chain: Chain = names.map(String::from).collect();
        let is_of_runtime = |name: &String| name.starts_with("runtime.");
        if !chain.iter().all(is_of_runtime) {
            chain.truncate(chain.len() - chain.iter().rev().take_while(|name| is_of_runtime(name)).count());
        }
        let numbers = all.entry(chain).or_default();
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
