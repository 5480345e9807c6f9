//! Runs `memtrace mark`.

use std::path::Path;
use std::process::Command;

use crate::tracer;

/// Runs `memtrace mark` with these arguments. Returns the exit code, standard output and standard
/// error.
///
/// # Panics
///
/// If the command does not start, or does not print UTF-8.
#[must_use]
pub fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(tracer::binary()).arg("mark").args(arguments).output().expect("memtrace runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Sets a mark in the recording that listens at `socket`, and returns the standard output.
///
/// # Panics
///
/// If the mark is not set.
pub fn set(socket: &Path, text: &str) -> String {
    let socket = socket.to_str().expect("a path in UTF-8");
    let (code, stdout, stderr) = run(&["--socket", socket, text]);
    assert_eq!(code, Some(0), "{stderr}");
    stdout
}
