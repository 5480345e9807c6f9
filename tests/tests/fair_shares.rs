//! A ledger that is nearly full: the process with the most live blocks is demoted, and processes of other users stay
//! exact.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

mod long;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use memtrace_json::Demotion;
use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Report, Scratch, Trace, Tracer, Victim, VictimTotals, recording_report, victim};

/// Exit code of a trace with a demoted process.
const INCOMPLETE: i32 = 20;
const NOBODY: u32 = 65534;
/// Number of small blocks in a step of `hoard`.
const SMALL: u64 = 16_000;
/// Number of large blocks in a step of `hoard`.
const LARGE: u64 = 200;
/// Size of a small block in bytes.
const SMALL_SIZE: u64 = 16;
/// A limit of live blocks that `hoard` exceeds. It leaves room for all other blocks.
const LIMIT: [&str; 2] = ["--max-live", "4k"];

/// A process of another user that fills the ledger, and a process that has to stay exact.
struct Neighbours {
    _scratch: Scratch,
    hoard: Victim,
    exact: Victim,
}

impl Neighbours {
    fn start() -> Self {
        let scratch = Scratch::new();
        let path = scratch.path("hoard");
        fs::copy(victim::path("hoard"), &path).expect("the victim is copied");
        let mut command = Command::new(&path);
        command.args([SMALL.to_string(), LARGE.to_string()]).uid(NOBODY).gid(NOBODY);
        Self { _scratch: scratch, hoard: Victim::start(&mut command), exact: victim::start("exact") }
    }

    fn trace(&self) -> Trace {
        Trace::pids(&[self.hoard.pid(), self.exact.pid()]).options(&LIMIT)
    }

    /// Fills the ledger, and waits until the BPF programs drop the small blocks.
    fn fill(&mut self, tracer: &mut Tracer) -> VictimTotals {
        let filled = self.hoard.work();
        let is_demoted = |line: &str| line.contains("are no longer followed");
        assert!(tracer.process().wait_for_stderr(is_demoted), "memtrace exited without a demotion");
        filled
    }
}

fn only_entry(report: &Report, pid: u32) -> &ProcessReport {
    let [process] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    process
}

/// Asserts that `hoard` has exact totals of allocations, that its small blocks are not followed, and that its large
/// blocks are exact. `steps`: number of its steps that allocated blocks.
fn assert_demoted<'report>(report: &'report Report, pid: u32, done: &VictimTotals, steps: u64) -> &'report Demotion {
    let hoard = only_entry(report, pid);
    let demotion = hoard.demotion.as_ref().expect("the process is marked as demoted");
    assert_eq!(hoard.totals.alloc_bytes, done.totals.alloc_bytes);
    assert_eq!(hoard.totals.alloc_count, done.totals.alloc_count);
    assert_eq!(demotion.min_size_bytes, 2 * SMALL_SIZE);
    assert_eq!((demotion.dropped.count, demotion.dropped.bytes), (steps * SMALL, steps * SMALL * SMALL_SIZE));
    assert_eq!(hoard.unmatched_frees, done.unmatched_frees);
    report.assert_consistent();
    report.assert_nothing_lost();
    demotion
}

#[test]
fn processes_of_other_users_stay_exact() {
    let mut neighbours = Neighbours::start();
    let mut tracer = neighbours.trace().start();
    neighbours.fill(&mut tracer);
    let expected = neighbours.exact.work();
    let done = neighbours.hoard.work();
    let outcome = tracer.stop();

    let report = outcome.report_with_code(INCOMPLETE);
    let pid = neighbours.hoard.pid();
    assert_demoted(&report, pid, &done, 2);
    let hoard = only_entry(&report, pid).totals;
    assert_eq!(hoard.live_count, 2 * LARGE);
    let exact = only_entry(&report, neighbours.exact.pid());
    exact.assert_equals(&expected);
    assert_eq!(exact.demotion, None);
    // The blocks of the second step were dropped before their stacks were taken.
    let without_stack: u64 =
        report.stacks.iter().filter(|stack| stack.end == "merged").map(|stack| stack.totals.alloc_count).sum();
    assert!((SMALL..2 * SMALL).contains(&without_stack), "{without_stack}");
    let large = done.sites.iter().find(|site| site.name == "allocate_large").expect("the victim has this site");
    report.assert_site("hoard.c", large);
    neighbours.hoard.finish();
    neighbours.exact.finish();
}

#[test]
fn frees_of_dropped_blocks_are_counted() {
    let mut neighbours = Neighbours::start();
    let mut tracer = neighbours.trace().start();
    neighbours.fill(&mut tracer);
    neighbours.hoard.work();
    let done = neighbours.hoard.work();
    neighbours.exact.work();
    let report = tracer.stop().report_with_code(INCOMPLETE);
    let pid = neighbours.hoard.pid();
    let demotion = assert_demoted(&report, pid, &done, 2);
    assert_eq!(demotion.demoted_frees, 2 * SMALL);
    assert_eq!(only_entry(&report, pid).totals.live_count, 0);
    neighbours.hoard.finish();
    neighbours.exact.finish();
}

#[test]
fn a_demoted_process_that_exits_keeps_its_numbers() {
    let mut neighbours = Neighbours::start();
    let mut tracer = neighbours.trace().start();
    neighbours.fill(&mut tracer);
    let done = neighbours.hoard.work();
    let pid = neighbours.hoard.pid();
    // The victim exits at the end of its standard input, and still holds its blocks.
    let status = neighbours.hoard.process().wait();
    assert!(status.success(), "{status}");
    let expected = neighbours.exact.work();
    let report = tracer.stop().report_with_code(INCOMPLETE);
    assert_demoted(&report, pid, &done, 2);
    let hoard = only_entry(&report, pid);
    assert_eq!((hoard.ended.as_deref(), hoard.totals.exit_count), (Some("exit"), 2 * LARGE));
    only_entry(&report, neighbours.exact.pid()).assert_equals(&expected);
    neighbours.exact.finish();
}

#[test]
fn a_recording_has_the_demotion() {
    let mut neighbours = Neighbours::start();
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let options = ["--every", "1s", "--record", recording.to_str().expect("the path is UTF-8")];
    let mut tracer = neighbours.trace().options(&options).start();
    neighbours.fill(&mut tracer);
    let done = neighbours.hoard.work();
    neighbours.exact.work();
    let outcome = tracer.stop();
    let pid = neighbours.hoard.pid();
    let live = assert_demoted(&outcome.report_with_code(INCOMPLETE), pid, &done, 2).clone();
    let recorded = recording_report::read(&recording, &[]);
    assert_eq!(assert_demoted(&recorded, pid, &done, 2), &live);
    neighbours.hoard.finish();
    neighbours.exact.finish();
}
