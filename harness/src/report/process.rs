//! The processes of a report.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::reclaim::StallTotals;
use crate::totals::Totals;

/// One program that one process executed, or a group of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ProcessReport {
    /// 0 for a group.
    #[serde(deserialize_with = "pid")]
    pub pid: u32,
    /// Number of processes of a group.
    pub runs: Option<u64>,
    /// Number of processes of a group by their end.
    #[serde(default)]
    pub ends: BTreeMap<String, u64>,
    pub first_start_s: Option<f64>,
    pub last_end_s: Option<f64>,
    /// The largest processes of a group.
    #[serde(default)]
    pub largest_runs: Vec<EndedRun>,
    pub comm: String,
    pub exe: Option<String>,
    /// `exit`, `exec` or `oom_kill`; `None` if it was running when the trace ended.
    pub ended: Option<String>,
    /// Time from the start of tracing to that end.
    pub ended_s: Option<f64>,
    pub totals: Totals,
    pub unmatched_frees: u64,
    /// Blocks that were live when the process executed another program.
    pub discarded: Amount,
    /// High-water mark of the live bytes.
    pub peak_bytes: Option<u64>,
    /// Frees of blocks that the parent allocated before the fork.
    pub inherited_frees: u64,
    /// Frees by the C library of blocks that were freed before.
    pub repeated_frees: u64,
    pub uid: Option<u32>,
    pub user: Option<String>,
    pub cgroup: Option<String>,
    pub threads: Option<u32>,
    pub traced_s: f64,
    pub allocs_per_s: Option<f64>,
    /// Stalls by kind; reclaim only.
    pub stalls: Option<BTreeMap<String, StallTotals>>,
    /// RSS; page faults only.
    pub resident_bytes: Option<u64>,
    /// High-water mark of the RSS; page faults only.
    pub peak_resident_bytes: Option<u64>,
    /// As the kernel counts them; page faults only.
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    /// RSS by kind of memory; page faults only.
    #[serde(default)]
    pub resident: BTreeMap<String, Resident>,
}

/// A process of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EndedRun {
    pub pid: u32,
    pub start_s: f64,
    pub end_s: f64,
    pub ended: String,
    pub totals: Totals,
}

/// Resident memory of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resident {
    pub total_bytes: u64,
    pub with_stack_bytes: u64,
    /// Resident since before the trace.
    pub before_bytes: u64,
}

/// A number of blocks and their total size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Amount {
    pub bytes: u64,
    pub count: u64,
}

/// Returns a process ID, 0 for `null`.
pub(super) fn pid<'json, D: Deserializer<'json>>(deserializer: D) -> Result<u32, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
