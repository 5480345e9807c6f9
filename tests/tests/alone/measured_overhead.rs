//! Measurement of the overhead during a trace, for targets that did not run before the trace.

use std::fs;
use std::process::Command;

use memtrace_tests::{Outcome, Scratch, Trace, Tracer, Victim, victim};

const HIGH: &str = "memtrace: warning: this is more than 25 % of the target's processor time; --min-size 64 saves ";
const NOTE: &str = "Note: tracing took at least ";

/// Starts a victim that waits for a line before it works, and for another line before it exits. Sends the first line.
fn command(name: &str, argument: &str) -> Tracer {
    let words = [victim::path(name).into_os_string(), argument.into()];
    let mut tracer = Trace::command(words).option("--no-children").start();
    tracer.process().write_line("");
    tracer
}

fn end(mut tracer: Tracer) -> Outcome {
    tracer.process().write_line("");
    tracer.wait()
}

/// Returns the share of the target's processor time, in percent, that the summary states.
fn noted_percent(outcome: &Outcome) -> u64 {
    let rest = outcome.stderr.split_once(NOTE).map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_once(" %")).and_then(|(number, _)| number.parse().ok());
    assert!(number.is_some(), "no share in the summary: {}", outcome.stderr);
    number.unwrap_or_default()
}

#[test]
fn high_overhead_of_a_command_is_warned_of_while_it_runs() {
    // The command ends by itself after the trace.
    let limited = format!("ulimit -t 10; exec {} 1000000000", victim::path("flood").display());
    let mut tracer = Trace::command(["sh", "-c", &limited]).option("--no-children").start();
    tracer.process().write_line("");
    assert!(tracer.process().wait_for_stderr_line(HIGH), "no warning");
    let outcome = tracer.stop();
    assert!(noted_percent(&outcome) > 25);
    assert_eq!(outcome.stderr.matches(HIGH).count(), 1, "{}", outcome.stderr);
}

#[test]
fn high_overhead_of_a_short_command_is_in_the_summary() {
    let outcome = end(command("flood", "20000"));
    assert!(noted_percent(&outcome) > 25);
    assert!(outcome.stderr.contains("; --min-size 64 saves about "), "{}", outcome.stderr);
    assert!(outcome.report().notes.iter().any(|note| note.starts_with("tracing took at least ")));
}

#[test]
fn command_that_only_computes_has_no_overhead_warning() {
    // The command computes for about a second.
    let outcome = end(command("compute", "1000000000"));
    assert!(!outcome.stderr.contains("of the target's processor time"), "{}", outcome.stderr);
}

#[test]
fn high_overhead_of_a_child_process_is_measured() {
    let shell = format!("{} 100000; exit 0", victim::path("flood").display());
    let mut tracer = Trace::command(["sh", "-c", &shell]).start();
    tracer.process().write_line("");
    assert!(noted_percent(&end(tracer)) > 25);
}

#[test]
fn high_overhead_of_a_process_that_starts_later_is_warned_of() {
    let scratch = Scratch::new();
    let name = "starts_later";
    let path = scratch.join(name);
    fs::copy(victim::path("flood"), &path).expect("the victim is copied");
    let mut tracer = Trace::system_wide().options(&["--comm", name]).start();
    let mut victim = Victim::start(Command::new(path).arg("1000000000"));
    victim.process().write_line("");
    assert!(tracer.process().wait_for_stderr_line(HIGH), "no warning");
    assert!(noted_percent(&tracer.stop()) > 25);
}
