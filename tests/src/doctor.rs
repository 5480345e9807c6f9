//! What `memtrace doctor` says, read from its JSON.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::{root, tracer};

/// All that it says.
#[derive(Debug, Deserialize)]
pub struct Told {
    /// What it found.
    pub findings: Vec<Finding>,
    /// What it ended with; `None`: a signal.
    #[serde(skip)]
    pub code: Option<i32>,
    /// What it wrote to standard error.
    #[serde(skip)]
    pub errors: String,
}

/// What it says of one thing.
#[derive(Debug, Deserialize)]
pub struct Finding {
    /// Of what.
    pub subject: String,
    /// What is to be held of it: `ok`, `info`, `warn` or `fail`.
    pub verdict: String,
    /// What was seen.
    pub detail: String,
    /// What can be done.
    pub remedy: Option<String>,
}

impl Told {
    /// The subjects with this verdict.
    #[must_use]
    pub fn subjects(&self, verdict: &str) -> Vec<&str> {
        let found = self.findings.iter().filter(|finding| finding.verdict == verdict);
        found.map(|finding| finding.subject.as_str()).collect()
    }

    /// The findings about a subject.
    #[must_use]
    pub fn about(&self, subject: &str) -> Vec<&Finding> {
        self.findings.iter().filter(|finding| finding.subject == subject).collect()
    }
}

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
