//! A process that chooses its names cannot control root's terminal through memtrace.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use memtrace_tests::{Scratch, Trace, Victim, process, root, tracer, victim};

/// File name with escape sequences, an invalid byte, a C1 control character in UTF-8, a direction mark and a forged
/// line. The kernel takes the first 15 bytes of the file name as the name of the process.
const NAME: &[u8] = b"a\x1b]0;b\x07\x1b[2J\n;\xff<c>\xc2\x9b31m\xe2\x80\xae\nattached to pid 1, 1 probes";

/// Name of the process in the JSON report. The report replaces only the invalid byte.
const COMM: &str = "a\u{1b}]0;b\u{7}\u{1b}[2J\n;\u{fffd}<";

/// Starts a copy of `victim` with a hostile file name.
fn start(scratch: &Scratch, victim: &str, arguments: &[&str]) -> Victim {
    let path = scratch.join(OsStr::from_bytes(NAME));
    process::run(Command::new("install").args(["-m", "755"]).arg(victim::path(victim)).arg(&path));
    Victim::start(Command::new(path).args(arguments))
}

/// Asserts that `text` has no control character except line feeds, no direction mark and no forged line.
#[track_caller]
fn assert_harmless(text: &str) {
    let controls = |line: &&str| line.contains(|character: char| character.is_control() || character == '\u{202e}');
    assert_eq!(text.lines().filter(controls).collect::<Vec<_>>(), [""; 0]);
    assert!(!text.lines().any(|line| line.starts_with("attached to pid 1,")), "{text}");
}

fn run(arguments: &[&str]) -> Output {
    root::require();
    Command::new(tracer::binary()).args(arguments).output().expect("memtrace starts")
}

/// Asserts that the output contains the name of the process, and is harmless.
#[track_caller]
fn assert_output(output: &Output) {
    for stream in [&output.stdout, &output.stderr] {
        assert_harmless(str::from_utf8(stream).expect("the output is UTF-8"));
    }
    let named = [&output.stdout, &output.stderr].iter().any(|stream| String::from_utf8_lossy(stream).contains("<c>"));
    assert!(named, "the file name is not in the output: {output:?}");
}

#[test]
fn hostile_names_do_not_reach_the_terminal_of_a_trace() {
    let scratch = Scratch::new();
    let mut victim = start(&scratch, "exact", &[]);
    let reports = Scratch::new();
    let files = ["out.txt", "out.svg", "out.json", "out.folded"].map(|name| reports.join(name));
    let mut trace = Trace::victim(&victim).options(&["-vv", "--by", "thread"]);
    for file in &files {
        trace = trace.option("-o").option(file);
    }
    let tracer = trace.start();
    victim.work();
    let outcome = tracer.stop();
    victim.finish();
    assert_harmless(&outcome.stderr);
    let line = outcome.stderr.lines().find(|line| line.starts_with("attached to pid ")).expect("it attached");
    assert!(line.contains(" (a\u{fffd}]0;b\u{fffd}\u{fffd}[2J\u{fffd};\u{fffd}<), "), "{line}");
    for file in files {
        assert_harmless(&fs::read_to_string(file).expect("the report was written"));
    }
    assert_eq!(outcome.report().processes[0].comm, COMM);
}

#[test]
fn hostile_names_do_not_reach_the_terminal_of_doctor_and_explain() {
    let scratch = Scratch::new();
    let victim = start(&scratch, "steady", &["100"]);
    let pid = victim.pid().to_string();
    for arguments in [["doctor", "--pid", &pid], ["explain", "--pid", &pid]] {
        assert_output(&run(&arguments));
    }
    assert_output(&run(&["doctor", "--json", "--pid", &pid]));
    assert_output(&run(&["explain", "--format", "json", "--pid", &pid]));
}

#[test]
fn hostile_names_do_not_reach_the_terminal_by_an_error() {
    let scratch = Scratch::new();
    let victim = start(&scratch, "bare", &[]);
    let output = run(&["--pid", &victim.pid().to_string(), "-o", "/dev/null", "--format", "txt"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_output(&output);
}

#[test]
fn hostile_command_does_not_reach_the_terminal() {
    let scratch = Scratch::new();
    let path = scratch.join(OsStr::from_bytes(NAME));
    fs::copy("/bin/true", &path).expect("the command is copied");
    let out = scratch.join("out.folded");
    let trace = |command: &Path| {
        Command::new(tracer::binary()).arg("-o").arg(&out).arg("--").arg(command).output().expect("memtrace starts")
    };
    let output = trace(&path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_output(&output);
    fs::remove_file(&path).expect("the command is removed");
    let output = trace(&path);
    assert_eq!(output.status.code(), Some(10), "{output:?}");
    assert_output(&output);
}
