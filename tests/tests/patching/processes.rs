//! Patched processes that fork, call exec or load libraries, and their system calls.

use std::cell::Cell;

use serde::Deserialize;

use super::*;

/// Forks a child, and returns its PID.
fn fork(target: &mut Target) -> u32 {
    target.victim.process().write_line("fork");
    let line = target.victim.process().read_line();
    line.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("the victim prints the PID of its child")
}

/// Releases the child, and returns its totals. The child has ended when the function returns.
fn finish_child(target: &mut Target) -> VictimTotals {
    let totals = target.answer("");
    assert_eq!(target.victim.process().read_line(), "{}");
    totals
}

/// Asserts that the stacks of a process with the leaves of a victim's sites have their totals of allocations.
fn assert_allocations(report: &Report, pid: u32, expected: &VictimTotals) {
    for site in &expected.sites {
        let stacks = report.stacks_with_leaf(&site.name).filter(|stack| stack.pid == pid);
        let totals: Totals = stacks.map(|stack| stack.totals).sum();
        let numbers = (totals.alloc_count, totals.alloc_bytes);
        assert_eq!(numbers, (site.totals.alloc_count, site.totals.alloc_bytes), "{}", site.name);
    }
}

#[test]
fn child_that_is_traced_is_sampled() {
    let mut target = Target::steps();
    let tracer = Trace::victim(&target.victim).options(EACH).option("--children").start();
    let of_parent = target.victim.work();
    let child = fork(&mut target);
    assert_eq!(patches(child).len(), patches(target.pid()).len(), "the child has the code of its parent");
    let of_child = finish_child(&mut target);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert!(of_child.totals.alloc_count > 1000, "{of_child:?}");
    assert_allocations(&report, child, &of_child);
    assert_eq!(only_entry(&report, target.pid()).totals, of_parent.totals);
    target.finish();
}

#[test]
fn child_that_is_not_traced_runs_without_samples() {
    let mut target = Target::steps();
    let tracer = target.trace(EACH);
    let before = target.victim.work();
    let child = fork(&mut target);
    let of_child = finish_child(&mut target);
    assert!(of_child.totals.alloc_count > 1000, "{of_child:?}");
    let after = target.victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&after);
    assert!(after.totals.alloc_count > before.totals.alloc_count);
    assert!(report.entries_of(child).is_empty(), "{:#?}", report.processes);
    target.finish();
}

#[test]
fn image_after_exec_is_patched_again() {
    let mut target = Target::steps();
    let pid = target.pid();
    let tracer = target.trace(EACH);
    let before = target.victim.work();
    target.victim.process().write_line("exec");
    assert_eq!(target.victim.process().read_line(), format!("ready {pid}"));
    // memtrace patches the new image while it waits at its barrier.
    wait_until_patched(pid);
    let after = target.victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let entries = report.entries_of(pid);
    let [first, second] = entries[..] else { panic!("{:#?}", report.processes) };
    assert_eq!(first.ended.as_deref(), Some("exec"));
    let ends = |process: &ProcessReport| (process.totals.alloc_count, process.totals.alloc_bytes);
    assert_eq!(ends(first), (before.totals.alloc_count, before.totals.alloc_bytes));
    assert_eq!(first.discarded.count, before.totals.live_count);
    assert_eq!(second.totals, after.totals);
    assert!(patches(pid).is_empty());
    target.victim.finish();
}

#[test]
fn command_is_sampled_from_its_patch_on() {
    let program = victim::path("patch_steps").into_os_string();
    let mut tracer = Trace::command([program, "3000".into()]).options(EACH).start();
    let line = tracer.process().read_line();
    let pid: u32 = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok()).expect("the victim is ready");
    wait_until_patched(pid);
    tracer.process().write_line("");
    let line = tracer.process().read_line();
    let expected: VictimTotals = serde_json::from_str(&line).expect("the victim printed its totals");
    // It ends at the end of its input.
    assert!(tracer.process().wait().success());
    let report = tracer.wait().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_sites(&report, "patch_steps.c", &expected);
}

#[test]
fn parent_of_vfork_is_patched_later() {
    let mut target = Target::with("patch_vfork", &[], None);
    let pid = target.pid();
    target.victim.process().write_line("wait");
    assert_eq!(target.victim.process().read_line(), "vforked");
    let mut tracer = Trace::victim(&target.victim).options(EACH).option("-vv").start_without_waiting();
    // The thread does not stop, and its child uses its memory.
    let has_attached = Cell::new(false);
    let is_refused = |line: &str| {
        has_attached.set(has_attached.get() || line.starts_with("attached"));
        line.contains("does not stop") || line.contains("uses the same memory")
    };
    assert!(tracer.process().wait_for_stderr(is_refused), "memtrace ended: {}", tracer.process().remaining_stderr());
    target.assert_untouched();
    // The child ends, and the parent goes on.
    target.victim.process().write_line("");
    assert_eq!(target.victim.process().read_line(), "{}");
    wait_until_patched(pid);
    assert!(has_attached.get() || tracer.process().wait_for_stderr_line("attached"), "memtrace ended");
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    target.finish();
}

#[test]
fn vfork_leaves_the_samples_of_the_parent_alone() {
    let mut target = Target::with("patch_vfork", &[], None);
    let tracer = target.trace(EACH);
    // A hundred children, 25 of which call exec.
    let expected = target.victim.work();
    let report = tracer.stop().report();
    report.assert_equals(&expected);
    target.finish();
}

#[test]
fn allocator_that_is_loaded_later_is_named() {
    let mut target = Target::steps();
    let mut tracer = target.trace(EACH);
    let expected = target.victim.work();
    let other = Target::with("patch_steps", &["1"], Some(MIMALLOC));
    let path = library(other.pid(), MIMALLOC);
    target.victim.process().write_line(&format!("load {}", path.display()));
    assert_eq!(target.victim.process().read_line(), "{}");
    assert!(tracer.process().wait_for_stderr(|line| line.contains(MIMALLOC)), "memtrace ended without a note");
    let report = tracer.stop().report();
    report.assert_consistent();
    let [process] = report.entries_of(target.pid())[..] else { panic!("{:#?}", report.processes) };
    assert!(process.totals.alloc_count >= expected.totals.alloc_count, "the linker allocates, too");
    assert_allocations(&report, target.pid(), &expected);
    let notes = report.notes_of_target();
    let is_note = |note: &&str| note.contains(MIMALLOC) && note.contains(&target.pid().to_string());
    assert!(notes.iter().any(is_note), "{notes:?}");
    assert!(patches(target.pid()).is_empty());
    target.victim.finish();
    other.victim.finish();
}

/// A kind of system call of the victim `patch_restarts`.
#[derive(Debug, Deserialize)]
struct Calls {
    name: String,
    calls: u64,
    wrong: u64,
    /// Last wrong result: the number of an error, or -1.
    last: i32,
}

#[test]
fn stops_change_no_result_of_a_system_call() {
    let mut target = Target::with("patch_restarts", &[], None);
    target.victim.process().write_line("");
    let mut restarted = 0;
    for _ in 0..4 {
        let tracer = target.trace(&["--sample-interval", "64KiB", "--allow-patching"]);
        assert!(patches(target.pid()).len() >= 4);
        let report = tracer.stop().report();
        report.assert_nothing_lost();
        restarted += patched(&report, target.pid()).restarted_calls;
        target.assert_restored();
    }
    target.victim.process().write_line("");
    let calls: Vec<Calls> = target.victim.read_json();
    assert!(calls.iter().all(|call| call.calls > 0), "{calls:#?}");
    let wrong: Vec<_> = calls.iter().filter(|call| call.wrong > 0).map(|call| (&*call.name, call.last)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // Several of its threads are always in a call that a stop ends with EINTR.
    assert!(restarted > 0, "no call was interrupted");
    target.finish();
}
