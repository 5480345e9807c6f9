//! A report that cannot be written at the end goes to a rescue file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memtrace_tests::totals::VictimTotals;
use memtrace_tests::{Outcome, Report, Scratch, Trace, Tracer, victim};

const FAILED: i32 = 1;

/// Script that mounts a file system of one page on its first argument, and runs the other arguments. The mount ends
/// with the command.
const FULL: &str = "directory=$1; shift; mount -t tmpfs -o size=4k none $directory && exec \"$@\"";

fn in_full_directory(trace: Trace, directory: &Path) -> Trace {
    trace.wrapped_in(&["unshare", "--mount", "sh", "-c", FULL, "sh", directory.to_str().expect("the path is UTF-8")])
}

/// Traces a victim. `at_end`: runs before the trace ends.
fn trace(prepare: impl FnOnce(Trace) -> Trace, at_end: impl FnOnce(&mut Tracer)) -> (Outcome, VictimTotals) {
    let mut victim = victim::start("exact");
    let mut tracer = prepare(Trace::victim(&victim)).start();
    let expected = victim.work();
    at_end(&mut tracer);
    let outcome = tracer.stop();
    victim.finish();
    outcome.assert_code(FAILED);
    (outcome, expected)
}

/// Returns the path of the rescue file in the error message.
fn rescue_file(outcome: &Outcome) -> PathBuf {
    let path = outcome.stderr.lines().find_map(|line| {
        line.trim().strip_prefix("tip: the report was written to ")?.strip_suffix(" instead").map(PathBuf::from)
    });
    assert!(path.is_some(), "no rescue file is named: {}", outcome.stderr);
    path.unwrap_or_default()
}

fn assert_rescued(path: &Path, expected: &VictimTotals) {
    let metadata = fs::symlink_metadata(path).expect("the rescue file exists");
    assert_eq!((metadata.is_file(), metadata.mode() & 0o7777), (true, 0o600), "{}", path.display());
    let text = fs::read_to_string(path).expect("the rescue file is text");
    Report::read(&text).expect("it is a report").assert_equals(expected);
}

#[test]
fn report_of_a_full_device_goes_to_the_state_directory() {
    let state = Scratch::new();
    let full = ["--format", "json", "-o", "/dev/full", "-q"];
    let (outcome, expected) = trace(|trace| trace.options(&full).environment("XDG_STATE_HOME", &*state), |_| {});
    assert!(outcome.stderr.contains("cannot write the report to /dev/full: No space left"), "{}", outcome.stderr);
    let path = rescue_file(&outcome);
    assert_eq!(path.parent(), Some(&*state));
    assert_rescued(&path, &expected);
    // The other outputs are written.
    outcome.report_with_code(FAILED).assert_equals(&expected);
}

#[test]
fn report_of_a_removed_directory_is_rescued() {
    let (state, scratch) = (Scratch::new(), Scratch::new());
    let removed = scratch.subdirectory("removed");
    let output = removed.join("live.json");
    let (outcome, expected) = trace(
        |trace| trace.option("-o").option(&output).environment("XDG_STATE_HOME", &*state),
        |_| fs::remove_dir(&removed).expect("the directory is empty"),
    );
    let path = rescue_file(&outcome);
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    assert!(path.starts_with(&*state) && name.starts_with("memtrace-") && name.ends_with("-live.json"), "{name}");
    assert_rescued(&path, &expected);
}

#[test]
fn full_state_directory_is_left_without_a_file() {
    let full = Scratch::new();
    let output = full.join("live.json");
    let (outcome, expected) = trace(
        |trace| in_full_directory(trace.option("-o").option(&output).environment("XDG_STATE_HOME", &*full), &full),
        |tracer| {
            // On the full file system, an empty file can be created, but a report cannot be written.
            let pid = tracer.process().pid();
            let seen = format!("/proc/{pid}/root{}", full.display());
            fs::write(format!("{seen}/filler"), [0; 4096]).expect("one page is free");
        },
    );
    let path = rescue_file(&outcome);
    assert_eq!(path.parent(), Some(Path::new("/var/tmp")), "{}", outcome.stderr);
    assert_rescued(&path, &expected);
    fs::remove_file(path).expect("the rescue file belongs to this user");
}
