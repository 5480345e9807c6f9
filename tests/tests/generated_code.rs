//! Names of code that is generated at run time. The victim generates a function, and calls back through it.

use memtrace_tests::{Report, Scratch, Trace, Victim, victim};
use std::process::Command;

/// Traces the victim. `how`: argument of the victim, which selects the file for the name of the generated function.
fn trace(how: &str) -> Report {
    let scratch = Scratch::new();
    let mut victim = Victim::start(Command::new(victim::path("jit")).arg(how).current_dir(scratch.path("")));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    report.assert_all_end("generated");
    report
}

/// Asserts that the generated function has this name, or this reason for a missing name.
fn assert_named(report: &Report, name: Result<&str, &str>) {
    assert_eq!(report.stacks.len(), 1, "{:#?}", report.stacks);
    let frames = &report.stacks[0].frames;
    let last: Vec<_> = frames[frames.len() - 5..].iter().map(|frame| frame.name.as_deref()).collect();
    assert_eq!(last, [Some("main"), Some("through"), name.ok(), Some("called_back"), Some("allocate")]);
    let generated = &frames[frames.len() - 3];
    let shown = (generated.name.as_deref(), generated.unnamed.as_deref());
    assert_eq!(shown, (name.ok(), name.err()));
    let (file, line) = if name.is_ok() { (Some("/srv/app.js"), Some(12)) } else { (None, None) };
    assert_eq!((generated.file.as_deref(), generated.line), (file, line));
    let by_frame_pointer = frames.iter().filter(|frame| frame.by_frame_pointer);
    assert_eq!(by_frame_pointer.map(|frame| frame.name.as_deref()).collect::<Vec<_>>(), [Some("through")]);
}

fn advice(report: &Report) -> Vec<&str> {
    let notes = report.notes.iter().filter(|note| note.starts_with("jit (pid "));
    notes.map(|note| note.split_once(": ").map_or("", |(_, advice)| advice)).collect()
}

#[test]
fn perf_map_names_generated_code() {
    let report = trace("map");
    assert_named(&report, Ok("compiled"));
    assert_eq!(advice(&report), [""; 0]);
}

#[test]
fn code_in_a_memfd_is_generated_code() {
    let report = trace("memfd");
    assert_named(&report, Ok("compiled"));
    assert_eq!(advice(&report), [""; 0]);
}

#[test]
fn jitdump_file_names_generated_code() {
    let report = trace("dump");
    assert_named(&report, Ok("compiled"));
    assert_eq!(advice(&report), [""; 0]);
}

#[test]
fn perf_map_of_another_user_is_not_read() {
    let report = trace("foreign");
    assert_named(&report, Err("code generated at run time; its perf map belongs to another user"));
    assert_eq!(advice(&report), ["its perf map belongs to another user and was not read"]);
}

#[test]
fn perf_map_that_is_a_link_is_not_read() {
    let report = trace("link");
    assert_named(&report, Err("code generated at run time"));
    assert_eq!(advice(&report), ["its perf map is not a regular file and was not read"]);
}

#[test]
fn missing_perf_map_is_noted_once() {
    let report = trace("none");
    assert_named(&report, Err("code generated at run time"));
    let expected = "generated code has no names (no perf map); the program has to write /tmp/perf-PID.map";
    assert_eq!(advice(&report), [expected]);
}
