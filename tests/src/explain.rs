//! Runs `memtrace explain`.

use std::ffi::OsStr;
use std::process::{Command, Output};

use crate::report::SelectionExplanation;
use crate::{Explanation, root, tracer};

/// Explains the memory of `pid`.
#[must_use]
pub fn explain_pid(pid: u32) -> Explanation {
    let output = explain(["--pid", &pid.to_string(), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("memtrace explain writes JSON")
}

/// Explains the memory of the processes that these arguments select.
#[must_use]
pub fn explain_selection(arguments: &[&str]) -> SelectionExplanation {
    let output = explain([arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("memtrace explain writes JSON")
}

/// Runs `memtrace explain` with these arguments.
pub fn explain<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Output {
    root::require();
    Command::new(tracer::binary()).arg("explain").args(arguments).output().expect("memtrace explain starts")
}
