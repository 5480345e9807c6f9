//! Traces for Perfetto, read with the messages that Perfetto publishes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process;

/// Returns the contents of a trace. `counters` has the values and their times by track and name. `instants` has the time,
/// the track and the text of each instant.
///
/// # Panics
///
/// If the file is not a trace, or `cargo xtask setup` has not installed the messages.
#[must_use]
pub fn read(path: &Path) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut python = Command::new("/usr/bin/python3");
    python.env("PYTHONPATH", root.join("target/viewers/python"));
    python.arg(root.join("crates/report/tests/report_golden/read_perfetto.py")).arg(path);
    serde_json::from_str(&process::run(&mut python)).expect("JSON")
}
