//! Runs `memtrace doctor`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use harness::report::doctor::Told;

use crate::{root, tracer};

/// What `before... binary doctor --json [--pid PID]` says.
///
/// # Panics
///
/// Without root, or if it does not write its JSON.
#[must_use]
pub fn through(before: &[&str], binary: &Path, pid: Option<u32>) -> Told {
    root::required();
    let mut words: Vec<&OsStr> = before.iter().map(OsStr::new).collect();
    words.extend([binary.as_os_str(), OsStr::new("doctor"), OsStr::new("--json")]);
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(pid.into_iter().flat_map(|pid| [String::from("--pid"), pid.to_string()]))
        .output()
        .expect("doctor can be run");
    let told: Told = serde_json::from_slice(&output.stdout).expect("doctor writes its own JSON");
    Told { code: output.status.code(), errors: String::from_utf8_lossy(&output.stderr).into_owned(), ..told }
}

/// What it says of this machine.
///
/// # Panics
///
/// As [`through`].
#[must_use]
pub fn of_machine() -> Told {
    through(&[], &tracer::binary(), None)
}
