//! Estimates of many processes.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::fs;

use super::*;

/// Number of traces.
const TRACES: usize = 20;
/// Number of runs of the victim in each trace.
const RUNS: usize = 250;

/// Of a hundred runs, about five may be off by more than the error. In a single hundred, this number varies by two, so
/// the test averages 50 hundreds: the share then varies by a third of a percent. For this number of sampled pages, 96
/// percent of the runs are within the error: it is the distance to the upper end of the interval, which is larger than the
/// distance to the lower end.
#[test]
fn intervals_contain_the_rss_in_95_of_100_runs() {
    let scratch = Scratch::new();
    // A kernel without kprobes does not show the size of a fault in a huge page, and the victims have ended at the report.
    let (report, ..) = trace("huge_and_small", &["--sample", "4"]);
    let pages = if has_records_of_huge_pages(&report) { "huge_and_small" } else { "small" };
    let mut verdicts = Vec::new();
    for number in 0..TRACES {
        let printed = scratch.join(format!("printed-{number}"));
        let command = format!("{} {pages} alone >>{}", victim::path("pages").display(), printed.display());
        let script = format!("for run in $(seq {RUNS}); do {command}; done");
        let options = ["--events", "fault", "--sample", "4", "--keep-ended", "1000"];
        let report = Trace::command(["sh", "-c", &script]).options(&options).run().report();
        let lines = fs::read_to_string(&printed).expect("the victims have printed their counts");
        let runs: Vec<PageCounts> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a line has the counts of a run")).collect();
        assert_eq!(runs.len(), RUNS);
        verdicts.extend(runs.iter().filter_map(|run| contains_rss(&report, run)));
    }
    let (all, within) = (verdicts.len(), verdicts.iter().filter(|within| **within).count());
    assert!(all >= TRACES * RUNS * 9 / 10, "{all} runs have complete stacks");
    assert!((93 * all..=97 * all).contains(&(100 * within)), "{within} of {all}");
}

/// Returns true if the estimate of the touched memory differs from the RSS at the end by at most its error. The victim
/// releases nothing before its end. Returns `None` if the unwind table of the victim was still being built.
fn contains_rss(report: &Report, run: &PageCounts) -> Option<bool> {
    let mut stacks = report.stacks.iter().filter(|stack| stack.pid == run.pid);
    if stacks.any(|stack| stack.end == "table_pending") {
        return None;
    }
    let stacks = run.stacks(report, "write_regions");
    let [stack] = stacks.as_slice() else { panic!("one stack touches all regions: {stacks:#?}") };
    let error = stack.content.totals.alloc_error_bytes.expect("the estimate has an error");
    let rss = run.functions["write_regions"].resident * PAGE;
    Some(stack.totals.alloc_bytes.abs_diff(rss) <= error)
}
