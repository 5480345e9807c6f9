//! Tests that select processes of the whole machine.

use super::*;

#[test]
fn selected_programs_are_read_and_others_are_listed() {
    const COMM: &str = "mt-of-go";
    let (heap, plain, directory) = (Scratch::new(), Scratch::new(), Scratch::new());
    let mut victim = Victim::start(&mut command(&copy(&heap, "go_heap", COMM), INTERVAL, &directory));
    let off = Victim::start(&mut Command::new(copy(&plain, "go_plain", COMM)));
    let mut tracer = Trace::system_wide().options(&["--comm", COMM]).start_without_waiting();
    let is_attached =
        |line: &str| line.starts_with("attached") && line.ends_with(" probes, 1 heap profile, 1 process not traced");
    assert!(tracer.process().wait_for_stderr(is_attached), "the heap profile is not shown");
    work(&mut victim);
    let report = tracer.stop().report();
    profile(&directory, "after").assert_held(&report, only_entry(&report, victim.pid()));
    let untraced: Vec<_> = report.untraced.processes.iter().map(|process| (process.pid, &*process.reason)).collect();
    assert_eq!(untraced, [(off.pid(), "go_profile_off")]);
    victim.finish();
}

#[test]
fn program_that_starts_during_the_trace_is_read() {
    const COMM: &str = "mt-later-go";
    let (scratch, directory) = (Scratch::new(), Scratch::new());
    let tracer = Trace::system_wide().options(&["--comm", COMM]).start();
    let mut victim = Victim::start(&mut command(&copy(&scratch, "go_heap", COMM), 1, &directory));
    work(&mut victim);
    let report = tracer.stop().report();
    profile(&directory, "after").assert_held(&report, only_entry(&report, victim.pid()));
    let small: Totals = report.stacks_with_leaf("main.small").map(|stack| stack.totals).sum();
    assert_eq!((small.alloc_count, small.live_count), (1000, 500), "all its blocks were allocated during the trace");
    victim.finish();
}

#[test]
fn child_processes_are_read() {
    let directory = Scratch::new();
    let program = victim::path("go_heap");
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; exit $?", "sh"]).arg(&program).arg(INTERVAL.to_string()).arg(&*directory);
    let mut child = Victim::start(&mut shell);
    let parent = child.process().pid();
    assert_ne!(parent, child.pid());
    let tracer = Trace::pids(&[parent]).option("--children").start();
    work(&mut child);
    let report = tracer.stop().report();
    profile(&directory, "after").assert_held(&report, only_entry(&report, child.pid()));
    child.finish();
}
