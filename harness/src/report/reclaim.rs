//! Memory stalls and reclaim in a report.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Memory stalls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StallTotals {
    pub count: u64,
    pub time_ns: u64,
    pub longest_ns: u64,
    pub scanned_pages: u64,
    pub reclaimed_pages: u64,
    pub latencies: Vec<LatencyCount>,
    pub orders: Vec<OrderCount>,
}

/// Number of stalls of allocations of 2^`order` pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OrderCount {
    pub order: Option<u32>,
    pub count: u64,
}

/// Number of stalls in a latency range: shorter than `below_us`, and at least half as long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LatencyCount {
    pub below_us: Option<u64>,
    pub count: u64,
}

/// Stalls in a memory cgroup or because of its limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CgroupStalls {
    /// Inode of its directory.
    pub id: Option<u64>,
    pub path: Option<String>,
    /// By kind.
    pub stalls: BTreeMap<String, StallTotals>,
    pub memory: Option<CgroupMemory>,
}

/// Memory of a cgroup.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CgroupMemory {
    /// cgroup version.
    pub version: u32,
    pub limit_bytes: Option<u64>,
    pub current_bytes: Option<u64>,
    pub refaulted_pages: Option<u64>,
    pub pressure: Option<Pressure>,
    /// memtrace's assessment.
    pub assessment: String,
}

/// PSI of a cgroup.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Pressure {
    pub some_s: f64,
}

/// Reclaim of the whole machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MachineReclaim {
    /// By kind of reclaim.
    pub efforts: BTreeMap<String, ReclaimActivity>,
    pub vmstat: Vmstat,
    /// memtrace's assessment.
    pub assessment: String,
    /// Tracepoints that this kernel lacks.
    pub missing_tracepoints: Vec<String>,
}

/// Reclaim of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReclaimActivity {
    pub times: u64,
    pub scanned_pages: u64,
    pub reclaimed_pages: u64,
}

/// Counters of `/proc/vmstat`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Vmstat {
    pub scanned_pages: u64,
    pub reclaimed_pages: u64,
    pub swapped_in_pages: u64,
    pub major_faults: u64,
    pub oom_kills: u64,
}

/// A process that the OOM killer killed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct OomKill {
    pub pid: u32,
    pub comm: String,
    /// The process with the failed allocation.
    pub by_pid: u32,
    /// The cgroup of the killed process.
    pub cgroup: Option<String>,
    /// The cgroup at its limit.
    pub full_cgroup: Option<String>,
}
