//! If the rings are too small, every call is recorded, counted as a named loss, or filtered.

mod alone;

use std::process::Command;

use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::RemovedCgroupRecord;
use memtrace_tests::{Cgroup, Report, Scratch, Trace, Victim, VictimTotals, victim};

/// Exit code of a trace with losses.
const LOST: i32 = 20;
/// Size of the blocks of `flood`, in bytes.
const SIZE: u64 = 48;

/// Asserts that recorded, lost and filtered calls add up to the calls of the victim, for allocations and for frees.
fn assert_balanced(report: &Report, done: &VictimTotals) {
    let lost = |reasons: &[LossReason]| reasons.iter().map(|&reason| report.loss_count(reason)).sum::<u64>();
    let recorded = report.totals;
    let lost_allocs = lost(&[
        LossReason::RingFullAlloc,
        LossReason::PendingFull,
        LossReason::PendingStale,
        LossReason::PointerUnreadable,
        LossReason::LedgerFull,
        LossReason::ProcessesFull,
    ]);
    assert_eq!(recorded.alloc_count + lost_allocs + report.filtered.count, done.totals.alloc_count, "{report:#?}");
    assert_eq!(recorded.alloc_bytes, recorded.alloc_count * SIZE);

    // A free that is inferred from the reuse of its address is one of the frees that found the ring
    // full.
    let recorded_frees = recorded.free_count - report.loss_count(LossReason::FreeUnseen) + report.unmatched_frees;
    assert_eq!(recorded_frees + report.loss_count(LossReason::RingFullFree), done.totals.free_count, "{report:#?}");
    // A missed probe would be a call of unknown kind.
    assert_eq!(report.loss_count(LossReason::ProbeMissed), 0);
    report.assert_consistent();
}

#[test]
fn recorded_and_lost_events_balance_with_a_tiny_ring() {
    let mut victim = victim::start_with("flood", &["40000"]);
    let tracer = Trace::victim(&victim).options(&["--ring-size", "4096", "--shards", "1"]).start();
    let done = victim.work();
    let outcome = tracer.stop();
    victim.finish();

    let report = outcome.report_with_code(LOST);
    assert!(
        report.loss_count(LossReason::RingFullAlloc) > 0 && report.loss_count(LossReason::RingFullFree) > 0,
        "{report:#?}"
    );
    assert_balanced(&report, &done);
    for reason in [LossReason::RingFullAlloc, LossReason::RingFullFree] {
        let count = report.loss_count(reason).to_string();
        let digits: String = outcome.stderr.chars().filter(|&character| character != ',').collect();
        assert!(digits.contains(&count), "{reason:?} is not reported: {}", outcome.stderr);
    }
    assert!(outcome.stderr.contains("--ring-size"), "no remedy is named: {}", outcome.stderr);
}

#[test]
fn recorded_and_lost_events_balance_with_several_shards() {
    let mut victim = victim::start_with("flood", &["20000"]);
    let tracer = Trace::victim(&victim).options(&["--ring-size", "4096", "--shards", "4", "--max-depth", "0"]).start();
    let done = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    assert_balanced(&outcome.report_with_code(LOST), &done);
}

#[test]
fn recorded_lost_and_filtered_events_balance() {
    let mut victim = victim::start_with("flood", &["20000"]);
    let options = ["--ring-size", "4096", "--shards", "1", "--min-size", "49"];
    let tracer = Trace::victim(&victim).options(&options).start();
    let done = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let report = outcome.report_with_code(LOST);
    assert_eq!((report.filtered.count, report.filtered.bytes), (done.totals.alloc_count, done.totals.alloc_bytes));
    assert_balanced(&report, &done);
}
