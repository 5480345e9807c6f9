//! Several formats of one run, and of its recording.

mod long;

use std::fs;

use memtrace_tests::activity::Activity;
use memtrace_tests::{Outcome, Scratch, Trace, perfetto, recording_report, victim};
use serde::Deserialize as _;
use serde_json::Value;

/// Traces a victim that starts its work after memtrace has attached, and that prints JSON.
fn traced(name: &str, arguments: &[&str], options: &[&str]) -> Outcome {
    let mut victim = victim::start_with(name, arguments);
    let tracer = Trace::victim(&victim).options(options).start();
    victim.process().write_line("");
    let _: Value = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    outcome
}

#[test]
fn activity_of_a_recording_equals_that_of_its_run() {
    for (name, arguments, options) in [
        ("spans", &["3"][..], ["--span=probes", "--allocator-latency=1ns"]),
        ("locks", &[], ["--span=probes", "--min-wait=1ms"]),
    ] {
        let scratch = Scratch::new();
        let [recording, json] = ["run.memtrace", "report.json"].map(|name| scratch.path(name));
        let record = recording.to_str().expect("the path is text");
        let outcome = traced(name, arguments, &[&options[..], &["--record", record, "-i", "100ms"]].concat());
        let of_run = outcome.activity();
        assert!(!of_run.spans.is_empty());
        let output = recording_report::run(&recording, &["-o", json.to_str().expect("the path is text")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&json).expect("the report is written");
        let of_recording = Activity::read(&text).expect("a JSON report");
        assert!(of_recording == of_run, "{name}: {of_recording:#?}\nis not\n{of_run:#?}");
    }
}

#[test]
fn heap_profiles_of_a_run_are_those_at_its_marks() {
    // Indices in the counters of the victim.
    const ALLOCATED: usize = 1;
    const FREED: usize = 3;
    let scratch = Scratch::new();
    let (temporary, trace) = (scratch.subdirectory("temporary"), scratch.path("a.pftrace"));
    let mut victim = victim::start("accounts");
    let tracer = Trace::victim(&victim).environment("TMPDIR", &temporary);
    let mut tracer = tracer.options(&["--heap-profile", "+1h", "-o"]).option(&trace).start();
    let mut phase = || -> u64 {
        victim.process().write_line("");
        let counters: Vec<[u64; 11]> = victim.read_json();
        let all = counters.last().expect("the victim prints the sum");
        all[ALLOCATED] - all[FREED]
    };
    let first = phase();
    tracer.process().signal(libc::SIGUSR2);
    assert!(tracer.process().wait_for_stderr_line("memtrace: mark SIGUSR2 at "));
    let second = phase();
    assert_ne!(first, second);
    let outcome = tracer.stop();
    victim.finish();
    let read = perfetto::read(&trace);
    let profiles: Vec<(u64, [u64; 4])> = Vec::deserialize(&read["profiles"]).expect("heap profiles");
    let live: Vec<u64> = profiles.iter().map(|(_, [allocated, freed, ..])| allocated - freed).collect();
    assert_eq!(live, [first, second]);
    assert_eq!(read["instants"][0][2], "SIGUSR2");
    assert!(outcome.stderr.contains("1 of 1 heap profiles are missing"), "{}", outcome.stderr);
    assert_eq!(fs::read_dir(temporary).expect("it is a directory").count(), 0);
}

#[test]
fn marks_are_in_a_trace_without_a_recording() {
    let scratch = Scratch::new();
    let trace = scratch.path("a.pftrace");
    let victim = victim::start("accounts");
    let mut tracer = Trace::victim(&victim).option("-o").option(&trace).start();
    tracer.process().signal(libc::SIGUSR2);
    assert!(tracer.process().wait_for_stderr_line("memtrace: mark SIGUSR2 at "));
    tracer.stop().assert_code(0);
    assert_eq!(perfetto::read(&trace)["instants"][0][2], "SIGUSR2");
}
