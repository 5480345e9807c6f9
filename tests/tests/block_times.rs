//! Sizes, lifetimes and ages of blocks, and temporary blocks.

use memtrace_tests::report::block_counts;
use memtrace_tests::{Report, Scratch, Stack, Trace, VictimTotals, recording_report, victim};
use serde::Deserialize;

/// Totals that the victim `block_times` prints.
#[derive(Debug, Deserialize)]
struct BlockTimes {
    #[serde(flatten)]
    totals: VictimTotals,
    size_log2: Vec<(u32, u64)>,
    temporary_bytes: u64,
    temporary_count: u64,
    /// Number of blocks that the second thread allocated at the address of the first thread's latest allocation.
    reused: u64,
    /// Bounds of the lifetimes of the blocks of `free_late`.
    late_min_ns: u64,
    late_max_ns: u64,
    /// Upper bound of the lifetimes of the blocks of `free_at_once`.
    once_max_ns: u64,
}

/// Unit of the times in records, in nanoseconds.
const TICK_NS: u64 = 1 << 20;

/// Returns the stacks that contain `function`.
fn stacks<'a>(report: &'a Report, function: &'a str) -> impl Iterator<Item = &'a Stack> {
    let is_within = move |stack: &&Stack| stack.frames.iter().any(|frame| frame.name.as_deref() == Some(function));
    report.stacks.iter().filter(is_within)
}

/// Returns the lifetimes of the blocks that `function` has allocated, as numbers of blocks by
/// binary logarithm.
fn lifetimes(report: &Report, function: &str) -> Vec<(u32, u64)> {
    stacks(report, function)
        .flat_map(|stack| stack.histograms.as_ref().expect("histograms").lifetime_log2.clone())
        .collect()
}

fn count(lifetimes: &[(u32, u64)]) -> u64 {
    lifetimes.iter().map(|(_, count)| count).sum()
}

#[test]
fn histograms_equal_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let mut victim = victim::start("block_times");
    let trace = Trace::victim(&victim).options(&["--lifetimes", "-i", "100ms", "--record"]).option(&recording);
    let tracer = trace.start();
    victim.process().write_line("");
    let expected: BlockTimes = victim.read_json();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected.totals);

    let all = report.histograms.clone().expect("histograms");
    assert_eq!(all.size_log2, expected.size_log2);
    let totals = report.totals;
    assert_eq!(block_counts(&all), [totals.alloc_count, totals.free_count, totals.live_count]);
    for stack in &report.stacks {
        let of_stack = stack.histograms.as_ref().expect("histograms");
        assert_eq!(
            block_counts(of_stack),
            [stack.totals.alloc_count, stack.totals.free_count, stack.totals.live_count]
        );
    }

    let late = lifetimes(&report, "free_late");
    let (least, most) = ((expected.late_min_ns - TICK_NS).ilog2(), (expected.late_max_ns + TICK_NS).ilog2());
    assert!(late.iter().all(|(log2, _)| (least..=most).contains(log2)), "{late:?}, not {least} to {most}");
    let once = lifetimes(&report, "free_at_once");
    let most = (expected.once_max_ns + TICK_NS).ilog2();
    assert!(once.iter().all(|(log2, _)| *log2 <= most), "{once:?}, not up to {most}");
    assert_eq!([count(&late), count(&once)], [40, 40]);

    let recorded = recording_report::read(&recording, &[]);
    assert_eq!(recorded.histograms, report.histograms);
    assert_eq!(recorded.stacks, report.stacks);
}

#[test]
fn temporary_blocks_equal_the_counts_of_the_victim() {
    let scratch = Scratch::new();
    for (shards, site) in [("1", "best"), ("3", "best"), ("2", "entry")] {
        let recording = scratch.join(format!("{shards}{site}.memtrace"));
        let mut victim = victim::start("block_times");
        let trace =
            Trace::victim(&victim).options(&["--metric", "temporary", "--shards", shards, "--probe-site", site]);
        let tracer = trace.option("--record").option(&recording).start();
        victim.process().write_line("");
        let expected: BlockTimes = victim.read_json();
        let report = tracer.stop().report();
        victim.finish();
        report.assert_equals(&expected.totals);
        assert!(expected.reused > 0, "{expected:?}");

        let sum = |of: fn(&Stack) -> Option<u64>| report.stacks.iter().filter_map(of).sum::<u64>();
        let temporary =
            [sum(|stack| stack.content.totals.temporary_count), sum(|stack| stack.content.totals.temporary_bytes)];
        assert_eq!(temporary, [expected.temporary_count, expected.temporary_bytes]);
        let of =
            |function| stacks(&report, function).filter_map(|stack| stack.content.totals.temporary_count).sum::<u64>();
        let functions = [
            "free_at_once",
            "free_after_another",
            "free_in_another_thread",
            "free_reused_address",
            "reallocate",
            "free_late",
        ];
        assert_eq!(functions.map(of), [40, 40, 0, 0, 40, 1]);

        let recorded = recording_report::read(&recording, &[]);
        assert_eq!((&*recorded.metric, &recorded.stacks), ("temporary", &report.stacks));
    }
}

#[test]
fn blocks_held_at_exit_have_an_age() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let mut victim = victim::start("block_times");
    let trace = Trace::victim(&victim).options(&["--lifetimes", "--record"]).option(&recording);
    let tracer = trace.start();
    victim.process().write_line("");
    let expected: BlockTimes = victim.read_json();
    victim.finish();
    let report = tracer.wait().report();
    let totals = report.totals;
    assert!(totals.exit_count >= expected.totals.totals.live_count && totals.live_count == 0, "{totals:?}");
    let all = report.histograms.clone().expect("histograms");
    assert_eq!(block_counts(&all), [totals.alloc_count, totals.free_count, totals.exit_count]);
    assert_eq!(recording_report::read(&recording, &[]).histograms, report.histograms);
}

#[test]
fn histograms_are_counted_on_request_only() {
    let mut victim = victim::start_with("steady", &["10"]);
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    assert_eq!((&report.histograms, &report.stacks[0].histograms), (&None, &None));
    victim.finish();
}
