//! Start and end of traces and targets.

mod long;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::report::ProcessReport;
use memtrace_tests::{Totals, Trace, Victim, breakpoints, victim};

#[test]
fn processes_in_one_trace_have_separate_totals() {
    let mut victims = [victim::start("exact"), victim::start_with("steady", &["300"]), victim::start("realloc.musl")];
    let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
    let tracer = Trace::pids(&pids).start();
    let expected: Vec<_> = victims.iter_mut().map(Victim::work).collect();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(report.processes.len(), 3);
    for (pid, expected) in pids.iter().zip(&expected) {
        let process = report.processes.iter().find(|process| process.pid == *pid).expect("every process is listed");
        process.assert_equals(expected);
    }
    assert_eq!(report.totals, expected.iter().map(|expected| expected.totals).sum());
    victims.into_iter().for_each(Victim::finish);
}

#[test]
fn children_that_ran_before_the_trace_are_traced() {
    const COUNT: u64 = 20;
    // Each child waits until the victim works.
    let mut victim = victim::start_with("crowd", &[&COUNT.to_string(), "0"]);
    let tracer = Trace::victim(&victim).option("--children").start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_nothing_lost();
    report.assert_consistent();
    assert_eq!(report.totals, expected.totals.at_exit());
    let children = report.processes.iter().filter(|process| process.totals.alloc_count > 0);
    assert_eq!(children.map(ProcessReport::runs).sum::<u64>(), COUNT);
}

#[test]
fn concurrent_traces_of_one_process_are_both_exact() {
    let mut victim = victim::start("exact");
    let first = Trace::victim(&victim).start();
    let second = Trace::victim(&victim).start();
    let expected = victim.work();
    first.stop().report().assert_equals(&expected);
    second.stop().report().assert_equals(&expected);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    victim.finish();
}

#[test]
fn ending_one_trace_leaves_a_concurrent_trace_attached() {
    let mut victim = victim::start_with("steady", &["100"]);
    let first = Trace::victim(&victim).start();
    let second = Trace::victim(&victim).start();
    let early = victim.work();
    first.stop().report().assert_equals(&early);
    let expected = victim.work();
    second.stop().report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn trace_counts_only_events_after_attach() {
    let mut victim = victim::start_with("steady", &["100"]);
    let early = victim.work();
    let tracer = Trace::victim(&victim).start();
    let late = victim.work();
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    assert_eq!(report.totals, late.totals - early.totals);
    victim.finish();
}

#[test]
fn idle_process_is_listed_with_zeros() {
    let victim = victim::start_with("steady", &["100"]);
    let report = Trace::victim(&victim).start().stop().report();
    report.assert_nothing_lost();
    assert_eq!(report.totals, Totals::default());
    let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
    assert_eq!((process.pid, &*process.comm), (victim.pid(), "steady"));
    assert_eq!((process.totals, process.unmatched_frees), (Totals::default(), 0));
    victim.finish();
}

#[test]
fn breakpoints_exist_only_during_the_trace() {
    let mut victim = victim::start_with("steady", &["100"]);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    let tracer = Trace::victim(&victim).start();
    let probes = breakpoints::list(victim.pid());
    // memalign and aligned_alloc may share an address.
    assert!(probes.len() >= 9 && probes.iter().all(|probe| probe.contains("libc.so.6")), "{probes:?}");
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    victim.finish();
}

#[test]
fn other_processes_are_not_probed() {
    let target = victim::start_with("steady", &["100"]);
    let other = victim::start_with("steady", &["100"]);
    let tracer = Trace::victim(&target).start();
    assert_ne!(breakpoints::list(target.pid()), [""; 0]);
    assert_eq!(breakpoints::list(other.pid()), [""; 0]);
    tracer.stop().assert_code(0);
}

#[test]
fn sigkill_leaves_the_target_running_and_unprobed() {
    let mut victim = victim::start_with("steady", &["100", "5000"]);
    let mut tracer = Trace::victim(&victim).start();
    victim.work();
    assert_ne!(breakpoints::list(victim.pid()), [""; 0]);
    tracer.process().signal(libc::SIGKILL);
    tracer.process().wait_with_open_stdin();
    breakpoints::wait_until_removed(victim.pid());
    let expected = victim.work();
    assert_eq!((expected.totals.alloc_count, expected.totals.alloc_bytes), (20, 51_000));
    victim.finish();
}

#[test]
fn sigkill_during_attach_leaves_the_target_unprobed() {
    let mut victim = victim::start_with("steady", &["100"]);
    victim.work();
    for moment in [0, 5, 10, 20, 40, 60, 80, 120, 160, 240, 320, 500] {
        let mut tracer = Trace::victim(&victim).start_without_waiting();
        // The delay waits for nothing: the test kills memtrace at different moments.
        thread::sleep(Duration::from_millis(moment));
        tracer.process().signal(libc::SIGKILL);
        tracer.process().wait_with_open_stdin();
        breakpoints::wait_until_removed(victim.pid());
        victim.work();
    }
    victim.finish();
}

#[test]
fn target_exit_ends_the_trace_and_its_live_blocks_are_held_at_exit() {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    victim.finish();
    let outcome = tracer.wait();
    let report = outcome.report();
    report.assert_equals(&expected);
    assert_eq!(report.processes[0].ended.as_deref(), Some("exit"));
    assert_eq!(report.totals, expected.totals.at_exit());
    assert!(expected.totals.live_bytes > 0);
    // This is the default metric of a trace without running processes.
    assert_eq!(report.metric, "exit-bytes");
    assert_eq!(outcome.folded().iter().map(|(_, bytes)| bytes).sum::<u64>(), expected.totals.live_bytes);
    let rows: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert!(rows.iter().any(|row| row.starts_with("at exit ")), "{}", outcome.stderr);
    assert!(!rows.iter().any(|row| row.starts_with("live ")), "{}", outcome.stderr);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
}

#[test]
fn exit_of_one_target_keeps_the_trace_and_its_symbols() {
    let mut short = victim::start("exact");
    let mut long = victim::start_with("steady", &["100"]);
    let tracer = Trace::pids(&[short.pid(), long.pid()]).start();
    long.work();
    let short_pid = short.pid();
    let expected_short = short.work();
    short.finish();
    let expected_long = long.work();
    let outcome = tracer.stop();
    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    let (exit, live) = (expected_short.totals.live_bytes, expected_long.totals.live_bytes);
    assert!(exit > 0 && live > 0 && report.metric == "live-bytes", "{exit}, {live}, {}", report.metric);
    assert_eq!((report.totals.exit_bytes, report.totals.live_bytes), (exit, live));
    assert_eq!(outcome.folded().iter().map(|(_, bytes)| bytes).sum::<u64>(), live, "the picture shows live memory");
    for row in ["live ", "at exit "] {
        assert!(outcome.stderr.lines().any(|line| line.starts_with(&format!("  {row}"))), "{}", outcome.stderr);
    }
    for process in &report.processes {
        let (expected, ended) =
            if process.pid == short_pid { (&expected_short, Some("exit")) } else { (&expected_long, None) };
        process.assert_equals(expected);
        assert_eq!(process.ended.as_deref(), ended);
    }
    for site in &expected_short.sites {
        report.assert_site("exact.c", site);
    }
    long.finish();
}

#[test]
fn process_that_never_allocates_has_an_end_with_its_time() {
    let outcome = Trace::command(["sh", "-c", "/bin/true; exec /bin/true"]).run();
    let report = outcome.report();
    report.assert_nothing_lost();
    report.assert_consistent();
    // A shell can start a program by vfork. The child has a row of its own until exec, and shares the memory of the shell.
    let own = report.processes.iter().filter(|process| process.shares_memory_of.is_none());
    let idle: Vec<_> = own.clone().filter(|process| process.comm == "true").collect();
    assert_eq!(idle.len(), 2, "{:#?}", report.processes);
    for process in own {
        assert_eq!(process.totals == Totals::default(), process.comm == "true", "{process:#?}");
        let ended_s = process.ended_s.expect("every process has ended");
        // A tick is about a millisecond.
        assert!((0.0..=report.duration_s + 0.002).contains(&ended_s), "{ended_s} of {}", report.duration_s);
    }
    assert!(idle.iter().all(|process| process.ended.as_deref() == Some("exit")), "{idle:#?}");
}

#[test]
fn processes_have_ended_even_if_the_records_of_their_exits_are_lost() {
    // Each run fills the rings while others exit.
    let one = format!("yes | {} 10000 >/dev/null", victim::path("flood").display());
    let script = format!("for run in $(seq 20); do {one} & done; wait");
    let traced = || {
        let trace = Trace::command(["sh", "-c", &script]).options(&["--ring-size", "4KiB", "--max-depth", "0"]);
        trace.run().report_with_code(20)
    };
    // By chance, a ring can have room at the exit of every process.
    let mut reports = (0..5).map(|_| traced());
    let report = reports.find(|report| report.loss_count(LossReason::RingFullProcess) > 0);
    let report = report.expect("the record of an exit is lost in one of five traces");
    assert!(report.processes.len() > 20, "{}", report.processes.len());
    assert!(report.processes.iter().all(|process| process.ended.is_some()), "{:#?}", report.processes);
    assert_eq!((report.totals.live_bytes, report.totals.live_count), (0, 0));
    assert_eq!(report.metric, "exit-bytes");
}

/// Number of processes of each command in a storm of processes.
const STORM: usize = 1000;

#[test]
fn sigkill_of_the_target_ends_the_trace() {
    let mut victim = victim::start_with("steady", &["100"]);
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    victim.process().signal(libc::SIGKILL);
    let report = tracer.wait().report();
    report.assert_equals(&expected);
    assert_eq!(report.processes[0].ended.as_deref(), Some("exit"));
}

#[test]
fn sigterm_ends_the_trace_like_sigint() {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    tracer.stop_by(libc::SIGTERM).report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn duration_option_ends_the_trace() {
    let mut victim = victim::start_with("steady", &["100"]);
    let tracer = Trace::victim(&victim).options(&["--duration", "1s"]).start();
    let expected = victim.work();
    let report = tracer.wait().report();
    assert!((1.0..30.0).contains(&report.duration_s), "{}", report.duration_s);
    report.assert_equals(&expected);
    assert_eq!(report.processes[0].ended, None);
    assert!(victim.process().is_running());
    victim.finish();
}
