//! Runs `memtrace explain`.

use std::ffi::OsStr;
use std::process::{Command, Output};

use crate::{Page, root, tracer};

/// Explains the memory of `pid`.
#[must_use]
pub fn of(pid: u32) -> Page {
    let output = explain(["--pid", &pid.to_string(), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("explain writes its own JSON")
}

/// Runs `memtrace explain` with these arguments.
pub fn explain<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Output {
    root::required();
    Command::new(tracer::binary()).arg("explain").args(arguments).output().expect("memtrace starts")
}
