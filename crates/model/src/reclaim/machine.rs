//! Reclaim activity of the whole machine.

use std::collections::BTreeMap;

use crate::{Nanoseconds, PerSecond, PressureTime, ReclaimKind, VmCounters};

/// Activity of one kind of reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimActivity {
    /// Number of completed runs.
    pub times: u64,
    /// Total time of the runs.
    pub time: Nanoseconds,
    /// Number of scanned inactive pages.
    pub scanned: u64,
    /// Number of scanned active pages.
    pub scanned_active: u64,
    /// Number of inactive pages isolated from their list.
    pub taken: u64,
    /// Number of reclaimed pages.
    pub reclaimed: u64,
    /// Number of deactivated pages.
    pub deactivated: u64,
    /// Number of pages written out.
    pub written: u64,
}

/// Reclaim activity of a kernel thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Name of the thread.
    pub name: String,
    /// Kind of reclaim.
    pub work: ReclaimKind,
    /// Activity of the thread. Only runs, time, scanned inactive pages and reclaimed pages are counted for each thread.
    pub effort: ReclaimActivity,
}

/// Reclaim activity of the whole machine during the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineReclaim {
    /// Activity by kind. Kinds without activity have no entry.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// Kernel threads, by decreasing time.
    pub threads: Vec<KernelThread>,
    /// Increases of the kernel's counters.
    pub counters: VmCounters,
    /// Number of seconds with scanning and with paging.
    pub seconds: PerSecond,
    /// Time with memory pressure on the machine; `None` if the kernel does not measure it.
    pub pressure: Option<PressureTime>,
    /// Names of tracepoints that the kernel lacks. Their data is missing.
    pub missing: Vec<String>,
}
