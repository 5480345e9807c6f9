//! What the whole machine has done to find memory.

use std::collections::BTreeMap;

use crate::model::{Nanoseconds, PerSecond, PressureTime, ReclaimKind, VmCounters};

/// What was done, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimActivity {
    /// How often it ended.
    pub times: u64,
    /// How long it took.
    pub time: Nanoseconds,
    /// Inactive pages that were looked at.
    pub scanned: u64,
    /// Active pages that were looked at.
    pub scanned_active: u64,
    /// Inactive pages that were taken off their list.
    pub taken: u64,
    /// Pages that were freed.
    pub reclaimed: u64,
    /// Pages that are not active any more.
    pub deactivated: u64,
    /// Pages that were written out.
    pub written: u64,
}

/// What a kernel thread has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Its name.
    pub name: String,
    /// What it did.
    pub work: ReclaimKind,
    /// How much. Only how often, how long, and what was scanned and reclaimed is kept of each thread.
    pub effort: ReclaimActivity,
}

/// What the whole machine has done to find memory while it was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineReclaim {
    /// By what was done; what was not done is missing.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// The kernel's own threads, those first that took longest.
    pub threads: Vec<KernelThread>,
    /// What the kernel itself has counted.
    pub counters: VmCounters,
    /// Second by second.
    pub seconds: PerSecond,
    /// How long anyone on the machine waited; `None` where the kernel does not keep that.
    pub pressure: Option<PressureTime>,
    /// Tracepoints that the kernel does not have, so that what they tell is missing.
    pub missing: Vec<&'static str>,
}
