//! Measurement of the overhead during a trace, for targets that did not run before the trace.

use std::fs;
use std::process::Command;

use memtrace_tests::{Outcome, Scratch, Trace, Tracer, Victim, victim};

use super::overhead::{WARNING, effects};

const NOTE: &str = "tracing took at least ";
/// Options for `flood`, each with `N` percent of the overhead that it saves.
#[cfg(target_arch = "x86_64")]
const OPTIONS: &str =
    "--allow-patching (samples, and changes code of the target) saves about N % of it, --min-size 64 about N %";
#[cfg(not(target_arch = "x86_64"))]
const OPTIONS: &str = "--min-size 64 saves about N % of it";

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

/// Checks the options of a warning or a note, and the part of the overhead that each saves.
fn assert_saves(options: &str) {
    let (words, percents) = effects(options);
    assert_eq!(words, OPTIONS);
    // An option that saves less than a tenth is not named. Samples save more than a minimum size.
    assert!(percents.iter().all(|percent| (10.0..=100.0).contains(percent)), "{options}");
    assert!(percents.is_sorted_by(|first, second| first > second), "{options}");
}

/// Returns the options of the warnings.
fn warned(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix(WARNING)).collect()
}

/// Returns the share of the target's processor time, in percent, that the summary states.
fn noted_percent(outcome: &Outcome) -> u64 {
    let rest = outcome.stderr.split_once(&format!("Note: {NOTE}")).map(|(_, rest)| rest);
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
    assert!(tracer.process().wait_for_stderr_line(WARNING), "no warning");
    let outcome = tracer.stop();
    assert!(noted_percent(&outcome) > 25);
    let warnings = warned(&outcome);
    assert_eq!(warnings.len(), 1, "{}", outcome.stderr);
    warnings.into_iter().for_each(assert_saves);
}

#[test]
fn high_overhead_of_a_short_command_is_in_the_summary() {
    let outcome = end(command("flood", "20000"));
    assert!(noted_percent(&outcome) > 25);
    // The summary wraps the note.
    let report = outcome.report();
    let notes: Vec<_> = report.notes.iter().filter(|note| note.starts_with(NOTE)).collect();
    assert_eq!(notes.len(), 1, "{:?}", report.notes);
    let (_, options) = notes[0].split_once("; ").expect("options follow the share");
    assert_saves(options);
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
    assert!(tracer.process().wait_for_stderr_line(WARNING), "no warning");
    let outcome = tracer.stop();
    assert!(noted_percent(&outcome) > 25);
    warned(&outcome).into_iter().for_each(assert_saves);
}
