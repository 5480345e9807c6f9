//! What the report says of waits for memory.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Waits for memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// How long, all together.
    pub time_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Pages that were looked at.
    pub scanned_pages: u64,
    /// Pages that were freed.
    pub reclaimed_pages: u64,
    /// How many were how long.
    pub latencies: Vec<Latency>,
    /// How many were for how many pages side by side.
    pub orders: Vec<Order>,
}

/// So many waits were for 2^`order` pages side by side.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Order {
    /// As a power of two.
    pub order: Option<u32>,
    /// How many.
    pub count: u64,
}

/// The waits in a control group, or for its limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CgroupWaits {
    /// The number of its folder.
    pub id: Option<u64>,
    /// Its path.
    pub path: Option<String>,
    /// Its waits, by what was done meanwhile.
    pub stalls: BTreeMap<String, Waits>,
    /// Its memory.
    pub memory: Option<GroupMemory>,
}

/// What is told of a control group's memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct GroupMemory {
    /// Of control groups.
    pub version: u32,
    /// How much it may use.
    pub limit_bytes: Option<u64>,
    /// How much it uses.
    pub current_bytes: Option<u64>,
    /// Pages that came back.
    pub refaulted_pages: Option<u64>,
    /// How long its tasks waited.
    pub pressure: Option<Pressure>,
    /// What it comes to.
    pub reading: String,
}

/// How long tasks waited.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Pressure {
    /// At least one, in seconds.
    pub some_s: f64,
}

/// So many waits were shorter than so much, and no shorter than half of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Latency {
    /// In microseconds.
    pub below_us: Option<u64>,
    /// How many.
    pub count: u64,
}

/// What the whole machine has done to find memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Machine {
    /// By what was done.
    pub efforts: BTreeMap<String, Effort>,
    /// What the kernel has counted.
    pub vmstat: Vmstat,
    /// What it comes to.
    pub reading: String,
    /// What this kernel does not tell of.
    pub missing_tracepoints: Vec<String>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Effort {
    /// How often.
    pub times: u64,
    /// Inactive pages that were looked at.
    pub scanned_pages: u64,
    /// Pages that were freed.
    pub reclaimed_pages: u64,
}

/// What the kernel has counted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Vmstat {
    /// Inactive pages that were looked at.
    pub scanned_pages: u64,
    /// Pages that were freed.
    pub reclaimed_pages: u64,
    /// Pages that were read from swap.
    pub swapped_in_pages: u64,
    /// Touches that waited for a device.
    pub major_faults: u64,
    /// Processes that were killed.
    pub oom_kills: u64,
}

/// Who was killed for want of memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Kill {
    /// The victim.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Who found no memory.
    pub by_pid: u32,
    /// The control group of the victim.
    pub cgroup: Option<String>,
    /// The control group that was full.
    pub full_cgroup: Option<String>,
}
