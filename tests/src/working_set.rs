//! Runs `memtrace wss` and its victim.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde::Deserialize;

use crate::{Victim, root, tracer, victim};

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;

/// Size of a huge page in bytes.
pub const HUGE: u64 = 2 << 20;

/// Other pages that a victim touches: of libraries, stacks and variables.
pub const OTHERS: u64 = 64;

/// Kinds of memory, pages that a victim touches, and patterns, for which the bytes that a method finds are exact.
pub const EXACT_CASES: [(&str, u64, &str); 5] = [
    ("heap", 2560, "write"),
    ("heap", 25_600, "read"),
    ("shmem", 2560, "skewed"),
    ("shmem", 25_600, "write"),
    ("shmem", 0, "read"),
];

/// Number of pages of each victim: 160 MiB.
pub const PAGES: u64 = 40_960;

/// A reading, as in the JSON output.
#[derive(Clone, Debug, Deserialize)]
pub struct Reading {
    /// Method of the measurement.
    pub method: String,
    /// Requested time.
    pub requested_s: f64,
    /// End of the reading, since the start of memtrace.
    pub at_s: f64,
    /// Sum of the processes.
    pub total: Memory,
    /// Measured processes.
    pub processes: Vec<Measured>,
    /// Page faults that were lost, if the method traces any.
    pub lost_page_faults: Option<u64>,
    /// Page cache of the selected control groups that no process has mapped.
    pub unmapped_cache: Option<Cache>,
    /// The estimated limit, with `--fit`.
    pub fit: Option<Fit>,
}

/// Page cache.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Cache {
    /// Size.
    pub bytes: u64,
    /// Touched part.
    pub referenced_bytes: u64,
}

/// Estimate of a memory limit.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Fit {
    /// Needed memory.
    pub needed_bytes: u64,
}

/// A process of a reading.
#[derive(Clone, Debug, Deserialize)]
pub struct Measured {
    /// Its pid.
    pub pid: u32,
    /// Time between clearing and reading.
    pub estimated_s: f64,
    /// Duration of clearing.
    pub clear_s: f64,
    /// Duration of reading.
    pub read_s: f64,
    /// Sum of the kinds.
    pub total: Memory,
    /// Memory by kind.
    pub kinds: BTreeMap<String, Memory>,
    /// Memory that is locked, if the method determines it.
    pub locked_bytes: Option<u64>,
}

/// Memory of a process or of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Memory {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Proportional resident bytes.
    pub pss_bytes: u64,
    /// Referenced bytes: upper bound.
    pub referenced_bytes: u64,
    /// Referenced bytes: lower bound.
    pub least_referenced_bytes: u64,
    /// Bytes in huge pages.
    pub huge_bytes: u64,
}

impl Memory {
    /// Checks both bounds of a measurement in which one small page of each of `pages` huge pages was touched, and [`OTHERS`].
    pub fn assert_bounds_of_huge_pages(&self, pages: u64) {
        let within = |bytes: u64, expected: u64| (expected..=expected + OTHERS * PAGE).contains(&bytes);
        assert!(within(self.referenced_bytes, pages * HUGE), "{self:?}");
        assert!(within(self.least_referenced_bytes, pages * PAGE), "{self:?}");
    }
}

/// Runs `memtrace wss`.
#[must_use]
pub fn wss(words: &[&str]) -> Output {
    root::require();
    Command::new(tracer::binary()).arg("wss").args(words).output().expect("memtrace wss starts")
}

/// Measures with these words, as JSON.
#[must_use]
pub fn measure(words: &[&str]) -> Vec<Reading> {
    let output = wss(&[words, &["--format", "json"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("clearing and reading took at most"), "{text}");
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let readings: Vec<Reading> = lines.map(|line| serde_json::from_slice(line).expect("a line of JSON")).collect();
    for Reading { method, .. } in &readings {
        let effects = if method == "referenced" { "clears the accessed bits" } else { "" };
        assert!(text.contains(&format!("method {method}: {effects}")), "{text}");
    }
    readings
}

/// Starts a victim that touches `touched` of its [`PAGES`] pages.
#[must_use]
pub fn start(kind: &str, touched: u64, pattern: &str) -> Victim {
    start_with(&[kind, &PAGES.to_string(), &touched.to_string(), pattern])
}

/// Starts a victim that touches its pages.
#[must_use]
pub fn start_with(words: &[&str]) -> Victim {
    let mut victim = victim::start_with("working_set", words);
    victim.process().write_line("");
    victim
}
