//! Other tracers: memtraces that a trace of the machine leaves out, and tracers with probes in the same functions.

#![expect(clippy::panic, reason = "a test's tools fail the test")]

use std::process::{Command, Stdio};

use memtrace_tests::tracer::binary;
use memtrace_tests::{Outcome, Scratch, Trace, Tracer, Victim, kernel, victim};

/// First release that shows the probes of a uprobe_multi link (`bpf_uprobe_multi_link_fill_link_info`,
/// kernel/trace/bpf_trace.c).
const SHOWN_PROBES: (u32, u32) = (6, 8);

/// Starts two traces of the victim. Returns them with their pids.
fn start_two(victim: &Victim) -> [(u32, Tracer); 2] {
    [(); 2].map(|()| {
        let mut tracer = Trace::victim(victim).start();
        (tracer.process().pid(), tracer)
    })
}

/// Returns the note of the report that contains `text`.
#[track_caller]
fn note(outcome: &Outcome, text: &str) -> String {
    let report = outcome.report();
    let notes = &report.notes;
    let found = notes.iter().find(|note| note.contains(text));
    found.unwrap_or_else(|| panic!("`{text}` is not in {notes:?}")).to_string()
}

#[test]
fn processes_of_other_memtraces_are_counted_and_named() {
    let mut victim = victim::start("exact");
    let others = start_two(&victim);
    let tracer = Trace::system_wide().start();
    let expected = victim.work();
    let outcome = tracer.stop();
    let report = outcome.report();
    let [process] = report.entries_of(victim.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    process.assert_equals(&expected);
    let note = note(&outcome, " of other memtraces are left out: ");
    for (pid, other) in others {
        assert!(note.contains(&format!("{pid} (memtrace)")), "{note}");
        assert!(outcome.stderr.contains(&format!("{pid} (memtrace)")), "{}", outcome.stderr);
        assert!(report.entries_of(pid).is_empty(), "{:#?}", report.processes);
        other.stop().assert_code(0);
    }
    victim.finish();
}

#[test]
fn process_with_the_name_of_memtrace_is_traced() {
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("exact"), "memtrace");
    let mut victim = Victim::start(&mut Command::new(&program));
    let tracer = Trace::system_wide().start();
    let expected = victim.work();
    let report = tracer.stop().report();
    let [process] = report.entries_of(victim.pid())[..] else { panic!("not one entry: {:#?}", report.processes) };
    assert_eq!(process.comm, "memtrace");
    process.assert_equals(&expected);
    victim.finish();
}

#[test]
fn root_without_capabilities_does_not_hide_by_the_executable() {
    // Runs memtrace during a trace of the machine, and returns true if its mappings are recorded.
    let is_traced = |options: &[&str]| {
        let tracer = Trace::system_wide().options(&["--events", "map"]).start();
        let mut command = Command::new("setpriv");
        command.args(options).arg(binary()).arg("--version").stdout(Stdio::null());
        let mut child = command.spawn().expect("setpriv is installed");
        let pid = child.id();
        assert!(child.wait().unwrap().success());
        let report = tracer.stop().report();
        let entries = report.entries_of(pid);
        entries.iter().any(|entry| entry.comm == "memtrace")
    };
    // Root in a container has the user of root, and no such capability.
    assert!(is_traced(&["--bounding-set", "-all", "--inh-caps", "-all"]));
    assert!(!is_traced(&["--inh-caps", "-all"]));
}

#[test]
fn tracers_of_the_same_functions_are_counted() {
    if kernel::version() < SHOWN_PROBES {
        return;
    }
    let mut victim = victim::start("exact");
    let mut stranger = victim::start("exact");
    let others = start_two(&victim);
    // These probes are not in the victim.
    let elsewhere = Trace::victim(&stranger).start();
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    stranger.work();
    let outcome = tracer.stop();
    outcome.report().assert_equals(&expected);
    let note = note(&outcome, " in the same functions, ");
    assert!(note.starts_with("2 other tracers have probes in the same functions, "), "{note}");
    for (pid, other) in others {
        assert!(note.contains(&format!("memtrace {pid}")), "{note}");
        other.stop().assert_code(0);
    }
    elsewhere.stop().assert_code(0);
    stranger.finish();
    victim.finish();
}
