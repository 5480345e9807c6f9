//! Estimates from sampled blocks, in every format, with numbers that were computed by hand.
//!
//! Each sample stands for 512 KiB in 8 blocks. Most blocks were not sampled, so the variances of a sample are 512² KiB² and 64.
//! With n samples, the distances from the estimate to the ends of its interval are 1.96·√(n + 0.9604) ± 1.9208 times these
//! amounts.

use std::time::Duration;

use memtrace_model::{
    Amount, Bytes, Frame, FrameId, Metric, Name, Part, Pid, ProcessProfile, Profile, Quantities, Quantity, RunFacts,
    SampleSource, Sampler, Samplers, StackEnd, StackProfile, Variance,
};
use memtrace_report::{Format, account_note};
use serde_json::Value;

use super::{options, report};

const KIB: u64 = 1 << 10;
const INTERVAL: u64 = 512 * KIB;
const SOURCE: &str = "Go's own profile, one sample each 512 KiB (1 process)";

/// Samples of blocks.
#[derive(Clone, Copy)]
struct BlockSamples {
    number: u64,
    /// Sum of the samples, in multiples of 512 KiB.
    units: u64,
    /// Variance of the sum, in sixteenths of 512² KiB².
    variance: u64,
}

/// Returns samples that stand for 512 KiB each.
const fn equal(number: u64) -> BlockSamples {
    BlockSamples { number, units: number, variance: 16 * number }
}

/// Returns the numbers of blocks that are held.
fn held(samples: BlockSamples) -> Quantities {
    numbers(samples, [Quantity::LiveBytes, Quantity::HeldSamples], [Variance::HeldBytes, Variance::HeldCount])
}

/// Returns the numbers of allocated blocks.
fn allocated(samples: BlockSamples) -> Quantities {
    numbers(samples, [Quantity::AllocBytes, Quantity::AllocSamples], [Variance::AllocBytes, Variance::AllocCount])
}

fn numbers(samples: BlockSamples, [bytes, number]: [Quantity; 2], [of_bytes, of_count]: [Variance; 2]) -> Quantities {
    let amount = Amount { bytes: Bytes(INTERVAL * samples.units), count: 8 * samples.units };
    let mut usage = Quantities::ZERO.with_amount(bytes, amount).with(number, samples.number);
    usage.add_variance(of_bytes, u128::from(INTERVAL * INTERVAL / 16 * samples.variance));
    usage.add_variance(of_count, u128::from(64 / 16 * samples.variance));
    usage
}

/// Returns the totals of allocated blocks. Some are held.
fn kept(live: BlockSamples, alloc: BlockSamples) -> Quantities {
    [held(live), allocated(alloc)].into_iter().sum()
}

/// Returns the totals of live blocks with this number of samples.
fn sampled(samples: u64) -> Quantities {
    kept(equal(samples), equal(samples))
}

/// Returns a Go server with 100 samples in one stack and 10 in another one, and a worker with exact blocks.
pub(crate) fn server() -> Profile {
    profile_of([sampled(100), sampled(10)])
}

/// Returns a server with two stacks. Of the 40 samples of the first stack, one stands for 64 times 512 KiB, and each of the other
/// 39 for 512 KiB. The 10 samples of the second stack are large blocks, which samples seldom miss.
pub(crate) fn unequal() -> Profile {
    let [first, second] = [
        BlockSamples { number: 40, units: 103, variance: 16 * (64 * 64 + 39) },
        BlockSamples { number: 10, units: 10, variance: 10 },
    ];
    profile_of([kept(first, first), kept(second, second)])
}

/// Returns a server that has freed four of eight samples of a stack. Six were live at the peak.
pub(crate) fn peak() -> Profile {
    let mut profile = profile_of([kept(equal(4), equal(8)), Quantities::ZERO]);
    profile.stacks.truncate(1);
    profile.processes.truncate(1);
    profile.stacks[0].usage[Quantity::AtPeakBytes] = 6 * INTERVAL;
    profile.processes[0].peak = Some(Bytes(6 * INTERVAL));
    profile
}

/// Returns the change in a window of a recording. Eight samples of a stack were allocated and four freed. Of another stack,
/// three were allocated and eleven freed.
pub(crate) fn window() -> Profile {
    let mut shrunk = allocated(equal(3));
    shrunk -= held(equal(8));
    let mut profile = profile_of([kept(equal(4), equal(8)), shrunk]);
    profile.run.window = Some(Duration::from_secs(10)..Duration::from_secs(40));
    profile
}

/// Returns a Go server with the totals of two stacks, and a worker with exact blocks.
fn profile_of([first, second]: [Quantities; 2]) -> Profile {
    let names = ["main", "insert", "handle", "parse"];
    let worker = Amount { bytes: Bytes(1024 * KIB), count: 16 };
    let worker = Quantities::of_blocks([worker, worker, Amount::default()]);
    let stacks = [(0, [0, 1], first), (0, [0, 2], second), (1, [0, 3], worker)];
    let stack = |(process, frames, usage): (usize, [usize; 2], Quantities)| StackProfile {
        usage,
        ..StackProfile::new(process, Part::WHOLE, frames.map(FrameId::new).into(), StackEnd::Complete)
    };
    let mut samplers = Samplers::default();
    samplers.add(Pid(4711), Sampler { source: SampleSource::Go, interval: Some(Bytes(INTERVAL)) });
    let mut profile = Profile {
        run: RunFacts { samplers, duration: Duration::from_secs(30), ..RunFacts::default() },
        processes: vec![ProcessProfile::new(Pid(4711), "server"), ProcessProfile::new(Pid(4712), "worker")],
        stacks: stacks.map(stack).into(),
        frames: names.map(|name| Frame::new(Ok(Name(String::from(name))))).into(),
        ..Profile::default()
    };
    for stack in &profile.stacks {
        profile.processes[stack.process].total += stack.usage;
    }
    profile
}

fn written(format: Format) -> String {
    report(format, &server(), &options(Metric::LiveBytes))
}

/// Returns the text with a blank for each run of blanks and line breaks.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_contains(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_text_has_the_interval_of_each_estimate() {
    let text = joined(&written(Format::Text));
    // 110 samples: 1.96·√110.9604 = 20.646, which are 10.323 MiB and 165 blocks. 100 samples: 19.694, 9.847 MiB and 158 blocks.
    // 10 samples: 6.489 ± 1.921, from 2.716 to 9.205 MiB, and from 43 to 148 blocks.
    let expected = [
        "live 56.00 MiB ± 10.32 MiB in 896 ± 165 blocks, 1.00 MiB of it exact allocated 56.00 MiB ± 10.32 MiB in",
        "freed 0 B (0 B to 1.92 MiB) in 0 blocks",
        "1. 89.3% 50.00 MiB ± 9.85 MiB in 800 ± 158 blocks, server (4711)",
        "2. 8.9% 5.00 MiB (2.72 to 9.20 MiB) in 80 (43 to 148) blocks, server (4711)",
        "3. 1.8% 1.00 MiB in 16 blocks, worker (4712)",
        "4711 server 55.0M ±10.3M 55.0M ±10.3M",
        "4712 worker 1.00M 1.00M",
        "Total: live 56.00 MiB ± 10.32 MiB in 896 ± 165 blocks, allocated 56.00 MiB ± 10.32 MiB",
        "A stack without samples holds less than 1.50 MiB with 95 %.",
    ];
    assert_contains(&text, &expected);
    let sentence = format!("Numbers with ± or with two ends are estimates from {SOURCE}.");
    assert_contains(&text, &[sentence.as_str()]);
    assert!(!text.contains("ALLOC/s") && !text.contains("FREED"), "{text}");
}

#[test]
fn rates_need_blocks_of_the_trace() {
    let rates_of = |from_start: bool, traced: u64, ended: Option<u64>, window: Option<u64>| {
        let mut profile = server();
        profile.run.from_start = from_start;
        let of_go = &mut profile.processes[0];
        of_go.traced = Duration::from_secs(traced);
        of_go.ended_after = ended.map(Duration::from_secs);
        profile.run.window = window.map(|start| Duration::from_secs(start)..Duration::from_secs(start + 30));
        profile.processes[1].traced = Duration::from_secs(30);
        let json: Value = serde_json::from_str(&report(Format::Json, &profile, &options(Metric::LiveBytes))).unwrap();
        [0, 1].map(|process| json["processes"][process]["alloc_bytes_per_s"].as_f64().is_some())
    };
    let rates = |traced, ended, window| rates_of(false, traced, ended, window);
    // The program ran before the trace, so its profile has older blocks.
    assert_eq!([rates(30, None, None), rates(12, Some(12), None)], [[false, true]; 2]);
    assert_eq!(rates(30, None, Some(0)), [false, true]);
    // The trace has started it.
    assert_eq!(rates_of(true, 30, None, None), [true, true]);
    // The program has started during the trace, or before the first moment of the window.
    assert_eq!([rates(20, None, None), rates(12, Some(20), None), rates(30, None, Some(5))], [[true, true]; 3]);
}

#[test]
fn the_json_has_the_ends_of_each_interval() {
    let json: Value = serde_json::from_str(&written(Format::Json)).unwrap();
    let numbers = |fields: &Value| {
        ["samples", "live_bytes_low", "live_bytes_high", "live_count_low", "live_count_high"]
            .map(|key| fields.get(key).and_then(Value::as_u64))
    };
    // 56 MiB - 9,817,502 and 56 MiB + 11,831,607; 896 - 150 and 896 + 181.
    assert_eq!(numbers(&json["totals"]), [110, 48_902_754, 70_551_863, 746, 1077].map(Some));
    assert_eq!(numbers(&json["processes"][0]["totals"]), [110, 47_854_178, 69_503_287, 730, 1061].map(Some));
    assert_eq!(numbers(&json["processes"][1]["totals"]), [None; 5]);
    assert_eq!(numbers(&json["roots"][0]), numbers(&json["processes"][0]["totals"]));
    assert_eq!(numbers(&json["stacks"][0]), [100, 43_110_579, 63_761_125, 657, 973].map(Some));
    assert_eq!(numbers(&json["stacks"][1]), [10, 2_847_894, 9_651_971, 43, 148].map(Some));
    assert_eq!(numbers(&json["stacks"][2]), [None; 5]);
    let ends = ["alloc_bytes_low", "alloc_bytes_high"].map(|key| &json["stacks"][1][key]);
    assert_eq!(ends, [&Value::from(2_847_894), &Value::from(9_651_971)]);
    assert_eq!(json["samplers"], serde_json::json!([{ "source": "go", "interval_bytes": INTERVAL }]));
}

/// Returns the numbers with these keys; `None` for a key that is missing.
fn integers<const N: usize>(fields: &Value, keys: [&str; N]) -> [Option<i64>; N] {
    keys.map(|key| fields.get(key).and_then(Value::as_i64))
}

#[test]
fn the_json_has_the_intervals_of_freed_memory_and_of_peaks() {
    let json: Value = serde_json::from_str(&report(Format::Json, &peak(), &options(Metric::PeakBytes))).unwrap();
    let freed = ["free_bytes_low", "free_bytes_high", "free_count_low", "free_count_high"];
    let samples = ["samples", "alloc_samples", "free_samples"];
    let peaks = ["peak_bytes_low", "peak_bytes_high"];
    let totals = [&json["totals"], &json["processes"][0]["totals"], &json["roots"][0], &json["stacks"][0]];
    for numbers in totals {
        // 4 samples: 1.96·√4.9604 ± 1.9208 = 2.44450 and 6.28610 times 512 KiB and 8 blocks.
        assert_eq!(
            integers(numbers, freed),
            [2_097_152 - 1_281_624, 2_097_152 + 3_295_729, 32 - 20, 32 + 51].map(Some)
        );
        assert_eq!(integers(numbers, samples), [4, 8, 4].map(Some));
    }
    for owner in [&json, &json["processes"][0], &json["roots"][0], &json["stacks"][0]] {
        // 8 samples: 1.96·√8.9604 ± 1.9208 = 3.94625 and 7.78785 times 512 KiB.
        assert_eq!(integers(owner, peaks), [3_145_728 - 2_068_972, 3_145_728 + 4_083_077].map(Some));
    }
    let exact: Value = serde_json::from_str(&written(Format::Json)).unwrap();
    assert_eq!(integers(&exact["stacks"][2], freed), [None; 4]);
    assert_eq!(integers(&exact["stacks"][2], samples), [None; 3]);
    assert_eq!(integers(&exact, peaks), [None; 2], "no peak was kept");
}

#[test]
fn the_json_of_a_window_has_the_intervals_of_changes() {
    let json: Value = serde_json::from_str(&report(Format::Json, &window(), &options(Metric::NetGrowth))).unwrap();
    let live = ["live_bytes", "live_bytes_low", "live_bytes_high", "live_count_low", "live_count_high"];
    let stack = |name: &str| {
        let is_of = |stack: &&Value| json["frames"][stack["frames"][1].as_u64().unwrap() as usize]["name"] == name;
        json["stacks"].as_array().unwrap().iter().find(is_of).unwrap()
    };
    // 12 samples: 1.96·√12.9604 + 1.9208 = 8.97691 times 512 KiB and 8 blocks.
    let grown = [2_097_152, 2_097_152 - 4_706_486, 2_097_152 + 4_706_486, 32 - 72, 32 + 72];
    assert_eq!(integers(stack("insert"), live), grown.map(Some));
    // 14 samples: 1.96·√14.9604 + 1.9208 = 9.50182.
    let shrunk = [-4_194_304, -4_194_304 - 4_981_691, -4_194_304 + 4_981_691, -64 - 77, -64 + 77];
    assert_eq!(integers(stack("handle"), live), shrunk.map(Some));
    assert_eq!(integers(stack("parse"), live), [Some(1_048_576), None, None, None, None]);
    // 26 samples: 1.96·√26.9604 + 1.9208 = 12.09779. The worker has grown by 1 MiB in 16 blocks.
    let total = [-1_048_576, -1_048_576 - 6_342_725, -1_048_576 + 6_342_725, -16 - 97, -16 + 97];
    assert_eq!(integers(&json["totals"], live), total.map(Some));
    let samples = ["samples", "alloc_samples", "free_samples"];
    assert_eq!(integers(stack("insert"), samples), [None, Some(8), Some(4)]);
    assert_eq!(integers(stack("handle"), samples), [None, Some(3), Some(11)]);
}

#[test]
fn the_flame_graph_has_the_interval_of_each_frame() {
    let svg = written(Format::Svg);
    let expected = [
        "<title>insert (52,428,800 bytes, 89.29%; ± 9.85 MiB)</title>",
        "<title>handle (5,242,880 bytes, 8.93%; 2.72 to 9.20 MiB)</title>",
        "<title>main (57,671,680 bytes, 98.21%; ± 10.32 MiB)</title>",
        "<title>main (1,048,576 bytes, 1.79%)</title>",
        "<title>all (58,720,256 bytes, 100%; ± 10.32 MiB)</title>",
        ">56.00 MiB ± 10.32 MiB in 30 s",
        "<g id=\"estimates\">",
    ];
    assert_contains(&svg, &expected);
    let legend = format!(">Estimates: {SOURCE}. A stack without samples holds less than 1.50 MiB with 95 %.</text>");
    assert_contains(&svg, &[legend.as_str()]);
}

#[test]
fn the_page_names_the_source() {
    let page = written(Format::Html);
    let legend = format!("<p id=\"estimates\">Estimates: {SOURCE}.");
    assert_contains(&page, &[legend.as_str()]);
    let mut exact = server();
    exact.run.samplers = Samplers::default();
    exact.stacks.truncate(0);
    assert!(!report(Format::Html, &exact, &options(Metric::LiveBytes)).contains("id=\"estimates\""));
}

#[test]
fn other_formats_name_the_source() {
    for format in [Format::Pprof, Format::Perfetto, Format::Firefox, Format::Speedscope, Format::Heaptrack] {
        let text = written(format);
        assert!(text.contains(&format!("lost: nothing; estimated: {SOURCE}")), "{}: {text}", format.name());
    }
    assert_eq!(
        written(Format::Folded),
        "server (4711);main;handle 5242880\nserver (4711);main;insert 52428800\nworker (4712);main;parse 1048576\n"
    );
    let note = account_note(&server().run.samplers);
    let expected = "the numbers of these processes, and sums with them, are estimates without errors: 4711 (Go's own profile, \
                    one sample each 512 KiB)";
    assert_eq!(note.as_deref(), Some(expected));
}
