//! Runs `memtrace report`.

use std::path::Path;
use std::process::{Command, Output};

use crate::{Report, root, tracer};

/// Runs `memtrace report` with these options.
pub fn run(recording: &Path, options: &[&str]) -> Output {
    root::require();
    Command::new(tracer::binary()).arg("report").arg(recording).args(options).output().expect("memtrace report starts")
}

/// Returns the JSON report of a recording of one event class. The exit code must be 0.
#[must_use]
pub fn read(recording: &Path, options: &[&str]) -> Report {
    let output = run(recording, &[&["--format", "json"], options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("memtrace report writes UTF-8");
    Report::read(&text).unwrap_or_else(|error| panic!("{error} in the JSON report:\n{text}"))
}
