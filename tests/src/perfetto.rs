//! Traces for Perfetto, read with the messages that Perfetto publishes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process;

/// Returns the counters and the instants of a trace. Counters are by track and name, with values and their times. Each
/// instant has its time, track and text.
///
/// # Panics
///
/// If the file is no trace, or `cargo xtask setup` has not installed the messages.
#[must_use]
pub fn read(path: &Path) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut python = Command::new("/usr/bin/python3");
    python.env("PYTHONPATH", root.join("target/viewers/python"));
    python.arg(root.join("crates/report/tests/report_golden/read_perfetto.py")).arg(path);
    serde_json::from_str(&process::run(&mut python)).expect("JSON")
}
