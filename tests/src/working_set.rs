//! Runs `memtrace wss` and its victim.

use std::io::{BufRead as _, BufReader, Lines};
use std::iter;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::{Victim, process, root, tracer, victim};

/// Size of a page in bytes.
pub const PAGE: u64 = 4096;

/// Size of a huge page in bytes.
pub const HUGE: u64 = 2 << 20;

/// Maximum number of other pages that a victim touches: of libraries, stacks and variables.
pub const OTHERS: u64 = 64;

/// Victims with exact results: kind of memory, number of touched pages, and pattern.
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
pub type Reading = memtrace_json::WorkingSets<'static>;

/// A process of a reading.
pub type Measured = memtrace_json::MeasuredProcess<'static>;

/// Memory of a process or of a kind.
pub type Memory = memtrace_json::WorkingSetMemory;

/// Asserts both bounds of a measurement. The victim has touched one small page in each of `pages` huge pages, and up to
/// [`OTHERS`] other pages.
pub fn assert_bounds_of_huge_pages(memory: &Memory, pages: u64) {
    let within = |bytes: u64, expected: u64| (expected..=expected + OTHERS * PAGE).contains(&bytes);
    assert!(within(memory.referenced_bytes, pages * HUGE), "{memory:?}");
    assert!(within(memory.least_referenced_bytes, pages * PAGE), "{memory:?}");
}

/// Runs `memtrace wss`.
#[must_use]
pub fn wss(words: &[&str]) -> Output {
    root::require();
    Command::new(tracer::binary()).arg("wss").args(words).output().expect("memtrace wss starts")
}

/// A running `memtrace wss` with readings on standard output.
pub struct Measurement {
    process: Child,
    readings: Lines<BufReader<ChildStdout>>,
}

impl Measurement {
    #[must_use]
    pub fn start(words: &[&str]) -> Self {
        root::require();
        let mut command = Command::new(tracer::binary());
        command.arg("wss").args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("memtrace wss starts");
        let readings = BufReader::new(process.stdout.take().expect("standard output is a pipe")).lines();
        Self { process, readings }
    }

    /// Waits for a reading.
    pub fn next_reading(&mut self) -> String {
        self.readings.next().expect("a reading").expect("it can be read")
    }

    /// Waits for the end. Returns the exit code and standard error.
    #[must_use]
    pub fn finish(mut self) -> (Option<i32>, String) {
        self.readings.by_ref().for_each(drop);
        let output = self.process.wait_with_output().expect("memtrace ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs `memtrace wss` with these words, and returns its readings.
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

/// Number of processes of a victim with the kind `forked`.
pub const FAMILY: u64 = 21;

/// Returns the options that select a victim and its children.
#[must_use]
pub fn select_family(victim: &Victim) -> Vec<String> {
    let pid = victim.pid();
    let pids: Vec<_> = iter::once(pid).chain(process::children(pid)).collect();
    assert_eq!(pids.len() as u64, FAMILY, "{pids:?}");
    pids.into_iter().flat_map(|pid| [String::from("--pid"), pid.to_string()]).collect()
}

/// Asserts that [`PAGES`] pages of a victim with the kind `forked` are resident once, and that `touched` of them were
/// touched.
pub fn assert_pages_count_once(reading: &Reading, touched: u64) {
    let others = FAMILY * OTHERS * PAGE;
    let within = |bytes: u64, pages: u64| (pages * PAGE..pages * PAGE + others).contains(&bytes);
    let distinct = reading.distinct.as_ref().expect("the page frames are known");
    let anonymous = distinct.kinds["anonymous"];
    assert!(within(anonymous.rss_bytes, PAGES) && within(anonymous.referenced_bytes, touched), "{distinct:?}");
    assert!(within(anonymous.least_referenced_bytes, touched), "{distinct:?}");
    assert_eq!(reading.processes.len() as u64, FAMILY);
    assert!(reading.total.rss_bytes > FAMILY * PAGES * PAGE, "{:?}", reading.total);
    // Pages that other processes map too, such as pages of libraries, count in part in the PSS.
    let rest = distinct.total.rss_bytes.checked_sub(reading.total.pss_bytes);
    assert!(rest.is_some_and(|rest| rest < 8 << 20), "{distinct:?} {:?}", reading.total);
}

/// Starts a victim with [`PAGES`] pages that touches `touched` of them.
#[must_use]
pub fn start(kind: &str, touched: u64, pattern: &str) -> Victim {
    start_with(&[kind, &PAGES.to_string(), &touched.to_string(), pattern])
}

/// Starts a victim that touches pages. `words`: arguments of the victim.
#[must_use]
pub fn start_with(words: &[&str]) -> Victim {
    let mut victim = victim::start_with("working_set", words);
    victim.process().write_line("");
    victim
}
