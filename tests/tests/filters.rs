//! Filters, metrics, and options of reports.

use std::thread;
use std::time::Duration;

use memtrace_tests::{Report, Stack, Totals, Trace, victim};

#[test]
fn sizes_outside_the_limits_are_filtered_and_counted() {
    let mut victim = victim::start_with("sizes", &["100", "3000"]);
    let tracer = Trace::victim(&victim).options(&["--min-size", "100", "--max-size", "3000"]).start();
    let expected = victim.work();
    assert!(expected.filtered_count > 0 && expected.unmatched_frees > 0);
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn min_size_filters_smaller_blocks() {
    let mut victim = victim::start_with("sizes", &["2048", "18446744073709551615"]);
    let tracer = Trace::victim(&victim).options(&["--min-size", "2k"]).start();
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn max_size_filters_larger_blocks() {
    let mut victim = victim::start_with("sizes", &["0", "2000"]);
    let tracer = Trace::victim(&victim).options(&["--max-size", "2000"]).start();
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn older_keeps_only_blocks_of_that_age() {
    let mut victim = victim::start_with("steady", &["1000", "70"]);
    let tracer = Trace::victim(&victim).options(&["--older", "3s"]).start();
    let early = victim.work();
    // The test needs blocks of different ages.
    thread::sleep(Duration::from_millis(3200));
    let all = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    let expected = Totals { live_bytes: early.totals.live_bytes, live_count: early.totals.live_count, ..all.totals };
    assert_eq!(report.totals, expected);
    assert_eq!(report.stacks.iter().map(|stack| stack.totals).sum::<Totals>(), expected);
}

type Value = fn(&Stack) -> u64;

/// Every metric with its value in the JSON report.
const METRICS: &[(&str, Value)] = &[
    ("live-bytes", |stack| stack.totals.live_bytes),
    ("live-count", |stack| stack.totals.live_count),
    ("alloc-bytes", |stack| stack.totals.alloc_bytes),
    ("alloc-count", |stack| stack.totals.alloc_count),
    ("peak-bytes", |stack| stack.peak_bytes.expect("the peak was kept")),
];

fn assert_folded_matches(report: &Report, folded: &[(String, u64)], value: Value) {
    assert!(!folded.is_empty());
    assert_eq!(folded.iter().map(|(_, value)| value).sum::<u64>(), report.stacks.iter().map(value).sum::<u64>());
    for site in ["held_at_the_peak", "held_afterwards"] {
        let folded_sum: u64 =
            folded.iter().filter(|(stack, _)| stack.ends_with(&format!(";{site}"))).map(|(_, value)| value).sum();
        assert_eq!(folded_sum, report.stacks_with_leaf(site).map(value).sum::<u64>(), "{site}");
    }
}

#[test]
fn folded_values_of_each_metric_match_the_json_report() {
    let mut victim = victim::start("peak");
    let tracers: Vec<_> =
        METRICS.iter().map(|(name, _)| Trace::victim(&victim).options(&["--metric", name]).start()).collect();
    let expected = victim.work();
    for (tracer, (_, value)) in tracers.into_iter().zip(METRICS) {
        let outcome = tracer.stop();
        let report = outcome.report();
        report.assert_equals(&expected);
        assert_folded_matches(&report, &outcome.folded(), *value);
    }
    victim.finish();
}

#[test]
fn peak_is_the_high_water_mark_per_call_site() {
    let mut victim = victim::start("peak");
    let tracer = Trace::victim(&victim).options(&["--metric", "peak-bytes"]).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    assert_eq!(expected.peak_bytes, 1_000_000);
    assert_eq!(report.processes[0].peak_bytes, Some(expected.peak_bytes));
    let at = |site: &str| report.stacks_with_leaf(site).map(|stack| stack.peak_bytes.unwrap_or(0)).sum::<u64>();
    assert_eq!((at("held_at_the_peak"), at("held_afterwards")), (1_000_000, 0));
    for site in &expected.sites {
        report.assert_site("peak.c", site);
    }
}

#[test]
fn max_depth_0_takes_no_stacks_and_keeps_the_totals() {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).options(&["--max-depth", "0"]).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let report = outcome.report();
    report.assert_equals(&expected);
    assert!(report.stacks.iter().all(|stack| stack.frames.is_empty() && stack.end == "not_taken"));
    assert_eq!(outcome.folded().iter().map(|(_, value)| value).sum::<u64>(), expected.totals.live_bytes);
}

#[test]
fn max_depth_1_keeps_only_the_leaf() {
    let mut victim = victim::start("peak");
    let tracer = Trace::victim(&victim).options(&["--max-depth", "1"]).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    for site in &expected.sites {
        report.assert_site("peak.c", site);
    }
    assert!(report.stacks.iter().all(|stack| stack.frames.len() == 1 && stack.end == "truncated"), "{report:#?}");
}

#[test]
fn top_limits_the_call_sites_in_the_summary() {
    let mut victim = victim::start("peak");
    let tracer = Trace::victim(&victim).options(&["--top", "1"]).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    outcome.report().assert_equals(&expected);
    assert!(outcome.stderr.contains("held_afterwards"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("held_at_the_peak"), "{}", outcome.stderr);
}
