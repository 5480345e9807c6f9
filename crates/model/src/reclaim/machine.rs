//! Reclaim activity of the whole machine.

use std::collections::BTreeMap;

use crate::{Nanoseconds, PerSecond, PressureTime, ReclaimKind, VmCounters};

/// Activity of one kind of reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimActivity {
    /// Number of completed runs.
    pub times: u64,
    /// Total time.
    pub time: Nanoseconds,
    /// Scanned inactive pages.
    pub scanned: u64,
    /// Scanned active pages.
    pub scanned_active: u64,
    /// Inactive pages isolated from their list.
    pub taken: u64,
    /// Reclaimed pages.
    pub reclaimed: u64,
    /// Deactivated pages.
    pub deactivated: u64,
    /// Pages written out.
    pub written: u64,
}

/// Activity of a kernel thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Name of the thread.
    pub name: String,
    /// Kind of reclaim.
    pub work: ReclaimKind,
    /// Activity. Only runs, time, and scanned and reclaimed pages are kept for a thread.
    pub effort: ReclaimActivity,
}

/// Reclaim activity of the whole machine during the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineReclaim {
    /// Activity by kind; kinds without activity are missing.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// Kernel threads, by decreasing time.
    pub threads: Vec<KernelThread>,
    /// Counters of the kernel.
    pub counters: VmCounters,
    /// Seconds with scanning and paging.
    pub seconds: PerSecond,
    /// Pressure of the machine; `None` if the kernel does not measure it.
    pub pressure: Option<PressureTime>,
    /// Tracepoints that the kernel lacks, so that their data is missing.
    pub missing: Vec<String>,
}
