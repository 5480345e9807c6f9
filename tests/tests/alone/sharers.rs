//! Children that share the memory of a traced process, as after vfork: their calls count for the process.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::process::Command;

use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Report, Scratch, Totals, Trace, Victim, VictimTotals, recording_report, victim};

/// Number of children in each mode of the victim.
const CHILDREN: usize = 10;
/// Number of small blocks that the victim, and then its child, takes in the mode `crowd`.
const CROWD: u64 = 8000;
/// Size of a small block in bytes.
const SMALL: u64 = 16;
/// Exit code of a trace with a demoted process.
const INCOMPLETE: i32 = 20;

/// Asserts that all blocks count for the victim. Returns the entries of the children with events.
fn children<'report>(report: &'report Report, pid: u32, expected: &VictimTotals) -> Vec<&'report ProcessReport> {
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(expected.unmatched_frees, 0);
    let [victim] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    victim.assert_equals(expected);
    assert_eq!(victim.shares_memory_of, None);
    let children: Vec<_> = report.processes.iter().filter(|process| process.shares_memory_of == Some(pid)).collect();
    for child in &children {
        assert_eq!((child.totals, child.unmatched_frees), (Totals::default(), 0), "{child:?}");
    }
    children
}

fn trace_family(mode: &str, shards: &str) -> (Report, u32, VictimTotals) {
    let mut victim = victim::start_with("sharers", &[mode]);
    let tracer = Trace::victim(&victim).options(&["--children", "--shards", shards]).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();
    (report, pid, expected)
}

#[test]
fn blocks_of_children_by_clone_count_for_the_process() {
    for shards in ["1", "4"] {
        let (report, pid, expected) = trace_family("clone", shards);
        let children = children(&report, pid, &expected);
        assert!(children.iter().all(|child| child.ended.as_deref() == Some("exit")), "{children:?}");
        assert_eq!((children.len(), report.processes.len()), (CHILDREN, CHILDREN + 1));
        let stacks: u64 = report.stacks_with_leaf("take").map(|stack| stack.totals.alloc_count).sum();
        assert_eq!(stacks, expected.totals.alloc_count, "stacks of children have names");
    }
}

#[test]
fn blocks_of_children_of_children_count_for_the_process() {
    for shards in ["1", "4"] {
        let (report, pid, expected) = trace_family("nested", shards);
        assert_eq!(children(&report, pid, &expected).len(), 2 * CHILDREN);
    }
}

#[test]
fn blocks_of_children_by_vfork_count_for_the_process() {
    for shards in ["1", "4"] {
        let (report, pid, expected) = trace_family("vfork", shards);
        let children = children(&report, pid, &expected);
        let ended = |end: &str| children.iter().filter(|child| child.ended.as_deref() == Some(end)).count();
        // The children that call exec at once are not listed.
        assert_eq!((ended("exit"), ended("exec"), children.len()), (CHILDREN, CHILDREN, 2 * CHILDREN));
    }
}

#[test]
fn a_child_that_is_not_selected_counts_for_the_process() {
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("sharers"), "mt-sharers");
    let mut victim = Victim::start(Command::new(program).arg("rename"));
    let tracer = Trace::system_wide().options(&["--comm", "mt-sharers"]).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();
    assert_eq!(children(&report, pid, &expected).len(), CHILDREN);
}

#[test]
fn memory_outlasts_a_process_that_exits_before_its_children() {
    let scratch = Scratch::new();
    for shards in ["1", "4"] {
        let program = scratch.copy(victim::path("sharers"), &format!("mt-leave-{shards}"));
        let mut victim = Victim::start(Command::new(&program).arg("leave"));
        let name = format!("mt-leave-{shards}");
        let tracer = Trace::system_wide().options(&["--comm", &name, "--shards", shards]).start();
        let expected = victim.work();
        let report = tracer.stop().report();
        let pid = victim.pid();
        victim.finish();
        let children = children(&report, pid, &expected);
        assert!(matches!(children[..], [child] if child.ended.is_none()), "{children:?}");
    }
}

#[test]
fn demotion_outlasts_a_process_that_exits_before_its_child() {
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("sharers"), "mt-crowd");
    let mut victim = Victim::start(Command::new(&program).arg("crowd"));
    let mut tracer = Trace::system_wide().options(&["--comm", "mt-crowd", "--max-live", "4k"]).start();
    victim.work();
    let is_demoted = |line: &str| line.contains("are no longer followed");
    assert!(tracer.process().wait_for_stderr(is_demoted), "memtrace exited without a demotion");
    let expected = victim.work();
    let report = tracer.stop().report_with_code(INCOMPLETE);
    let pid = victim.pid();
    victim.finish();
    let [process] = report.entries_of(pid)[..] else { panic!("not one entry: {:#?}", report.processes) };
    let dropped = &process.demotion.as_ref().expect("the process is marked as demoted").dropped;
    assert_eq!((dropped.count, dropped.bytes), (2 * CROWD, 2 * CROWD * SMALL));
    assert_eq!(process.totals.alloc_bytes, expected.totals.alloc_bytes);
    // The BPF programs have dropped the blocks, so that their stacks are not known.
    assert_eq!(report.stacks_with_leaf("take_late").count(), 0);
}

#[test]
fn a_recording_lists_processes_that_share_memory() {
    let scratch = Scratch::new();
    let recording = scratch.join("sharers.memtrace");
    let mut victim = victim::start_with("sharers", &["vfork"]);
    let trace = Trace::victim(&victim).option("--children").option("--record").option(&recording);
    let tracer = trace.start();
    let expected = victim.work();
    let report = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();
    let recorded = recording_report::read(&recording, &[]);
    let pids = |report: &Report| -> Vec<_> {
        children(report, pid, &expected).iter().map(|child| (child.pid, child.ended.clone())).collect()
    };
    assert_eq!(pids(&recorded), pids(&report));
    let text = recording_report::run(&recording, &["--format", "txt"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("shares the memory of {pid}")), "{text}");
}
