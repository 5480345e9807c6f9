//! The untraced processes of a report.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Processes in scope that are not traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Untraced {
    pub count: u64,
    pub rss_bytes: u64,
    pub reasons: BTreeMap<String, ProcessMemory>,
    /// The largest by RSS first.
    pub processes: Vec<UntracedProcess>,
}

/// Number of processes with the sum of their RSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ProcessMemory {
    pub count: u64,
    pub rss_bytes: u64,
}

/// A process that is not traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct UntracedProcess {
    pub pid: u32,
    pub comm: String,
    pub exe: Option<String>,
    pub reason: String,
    /// RSS at the end of tracing; `None` if it had ended.
    pub rss_bytes: Option<u64>,
}
