//! Differences of reports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use memtrace_tests::{Scratch, Trace, Victim, tracer, victim};
use serde_json::Value;

/// Python of the system.
const PYTHON: &str = "/usr/bin/python3";

fn diff(before: &Path, after: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(tracer::binary());
    command.arg("diff").args([before, after]).args(options).output().expect("memtrace diff starts")
}

fn json(before: &Path, after: &Path) -> Value {
    let output = diff(before, after, &["--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("memtrace diff writes JSON")
}

fn kinds(difference: &Value, kind: &str) -> usize {
    let sites = difference["sites"].as_array().expect("a list");
    sites.iter().filter(|site| site["kind"] == kind).count()
}

/// The addresses of the two runs differ.
#[test]
fn sites_of_a_restarted_python_match() {
    let scratch = Scratch::new();
    let program = "import json; json.loads(json.dumps({str(n): [n] for n in range(2000)}))";
    let run = |name: &str| {
        let report = scratch.join(name);
        let trace = Trace::command([PYTHON, "-S", "-c", program]).options(&["--metric", "alloc-bytes", "-o"]);
        let outcome = trace.option(&report).environment("PYTHONHASHSEED", "0").run();
        (report, outcome.report())
    };
    let ((first, before), (second, after)) = (run("first.json"), run("second.json"));
    let difference = json(&first, &second);
    let value = |side: &str| difference[side]["value"].as_u64().expect("a number");
    assert_eq!((value("before"), value("after")), (before.totals.alloc_bytes, after.totals.alloc_bytes));
    let sum = |key: &str| {
        let sites = difference["sites"].as_array().expect("a list");
        sites.iter().map(|site| site[key].as_u64().expect("a number")).sum::<u64>()
    };
    assert_eq!((sum("before"), sum("after")), (value("before"), value("after")));
    let all = difference["sites"].as_array().expect("a list");
    assert!(all.len() > 50, "{} sites", all.len());
    assert_eq!((kinds(&difference, "new"), kinds(&difference, "vanished")), (0, 0), "{difference:#}");
    let same = json(&first, &first);
    assert_eq!(kinds(&same, "stable"), same["sites"].as_array().expect("a list").len());
}

/// Asserts that the growth of a victim that keeps blocks equals the bytes that the victim counts.
fn assert_growth_equals_the_counts(extension: &str) {
    let scratch = Scratch::new();
    let trace_steps = |steps: usize, name: &str| {
        let report = scratch.join(name);
        let mut victim: Victim = victim::start_with("steady", &["100"]);
        let tracer = Trace::victim(&victim).option("-o").option(&report).start();
        let totals = (0..steps).map(|_| victim.work().totals).last().expect("a step");
        tracer.stop().assert_code(0);
        victim.finish();
        (report, totals.live_bytes)
    };
    let (first, before) = trace_steps(1, &format!("first.{extension}"));
    let (second, after) = trace_steps(3, &format!("second.{extension}"));
    let difference = json(&first, &second);
    assert_eq!(difference["change"].as_i64(), Some(after.cast_signed() - before.cast_signed()));
    assert_eq!((kinds(&difference, "grown"), kinds(&difference, "new")), (1, 0), "{difference:#}");
}

#[test]
fn growth_between_reports_equals_the_counts_of_the_victims() {
    assert_growth_equals_the_counts("json");
}

#[test]
fn growth_between_recordings_equals_the_counts_of_the_victims() {
    assert_growth_equals_the_counts("memtrace");
}

#[test]
fn moments_of_a_recording_are_compared() {
    let scratch = Scratch::new();
    let recording = scratch.join("run.memtrace");
    let mut victim = victim::start_with("steady", &["100"]);
    let tracer = Trace::victim(&victim).options(&["-i", "100ms", "-o"]).option(&recording).start();
    let totals = victim.work().totals;
    tracer.stop().assert_code(0);
    victim.finish();
    let start = PathBuf::from(format!("{}@+0s", recording.display()));
    let difference = json(&start, &recording);
    assert_eq!(difference["before"]["value"].as_u64(), Some(0));
    assert_eq!(difference["after"]["value"].as_u64(), Some(totals.live_bytes));
    assert_eq!(kinds(&difference, "new"), 1, "{difference:#}");
    let output = diff(&PathBuf::from(format!("{}@soon", recording.display())), &recording, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unreadable_reports_are_refused() {
    let scratch = Scratch::new();
    let report = scratch.write("empty.json", b"");
    for (path, reason) in [(report, "it is not a report in JSON"), (scratch.join("missing.json"), "No such file")] {
        let output = diff(&path, &path, &[]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(12), "{message}");
        assert!(message.contains(reason), "{message}");
    }
}
