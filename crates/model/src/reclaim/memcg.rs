//! Control groups with stalls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Bytes, CgroupId, PerSecond, PressureTime, ReclaimKind, StallStats};

/// A control group with stalls: its tasks stalled, or tasks stalled at its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemcgProfile {
    /// ID of the group; `None` for stalls of an unknown group.
    pub id: Option<CgroupId>,
    /// Path of the group; `None` if the group was removed before the lookup, or is outside the mounted hierarchy.
    pub path: Option<String>,
    /// Stalls of the traced processes, by kind.
    pub stalls: BTreeMap<ReclaimKind, StallStats>,
    /// Memory of the group, if it could be read.
    pub memory: Option<MemcgMemory>,
}

impl MemcgProfile {
    /// Returns the sum of the stalls of all kinds.
    #[must_use]
    pub fn all(&self) -> StallStats {
        StallStats::sum(self.stalls.values())
    }
}

/// Memory of a control group and its changes during the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcgMemory {
    /// True for cgroup version 2.
    pub version_2: bool,
    /// Limit of the group (`memory.max`); `None` if the group has no limit of its own.
    pub limit: Option<Bytes>,
    /// Limit above which tasks are throttled and reclaim pages (`memory.high`); `None` if it is not set.
    pub high: Option<Bytes>,
    /// Memory usage at the last reading, if known.
    pub current: Option<Bytes>,
    /// Duration of the observation. It begins with the trace if the group had a limit then, else with the group's first
    /// stall.
    pub watched: Duration,
    /// Refaults during the observation; `None` if the kernel does not report them.
    pub refaults: Option<u64>,
    /// Pressure during the observation; `None` if the kernel does not report it.
    pub pressure: Option<PressureTime>,
    /// Number of seconds with scanned pages, and of seconds with refaults. A page counts if any task scanned it because of the
    /// group's limit.
    pub seconds: PerSecond,
}

impl MemcgMemory {
    /// Returns the lower of `memory.high` and `memory.max`.
    #[must_use]
    pub fn effective_limit(&self) -> Option<Bytes> {
        self.limit.into_iter().chain(self.high).min()
    }
}
