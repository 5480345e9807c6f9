//! Runs `memtrace doctor`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use harness::report::doctor::DoctorReport;

use crate::{root, tracer};

/// Runs `wrapper... binary doctor --json [--pid PID]`.
#[must_use]
pub fn run_through(wrapper: &[&str], binary: &Path, pid: Option<u32>) -> DoctorReport {
    root::require();
    let mut words: Vec<&OsStr> = wrapper.iter().map(OsStr::new).collect();
    words.extend([binary.as_os_str(), OsStr::new("doctor"), OsStr::new("--json")]);
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(pid.into_iter().flat_map(|pid| [String::from("--pid"), pid.to_string()]))
        .output()
        .expect("memtrace doctor starts");
    let report: DoctorReport = serde_json::from_slice(&output.stdout).expect("memtrace doctor writes JSON");
    DoctorReport { code: output.status.code(), stderr: String::from_utf8_lossy(&output.stderr).into_owned(), ..report }
}

/// Runs `memtrace doctor --json`.
#[must_use]
pub fn run() -> DoctorReport {
    run_through(&[], &tracer::binary(), None)
}
