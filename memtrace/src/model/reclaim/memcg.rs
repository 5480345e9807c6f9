//! Control groups in which something waited for memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Bytes, CgroupId, PerSecond, PressureTime, ReclaimKind, StallStats};

/// A control group in which, or for whose limit, something waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemcgProfile {
    /// Which; `None`: all waits of which it is not known.
    pub id: Option<CgroupId>,
    /// Its path; `None` where it was gone before it could be looked up, or lies outside of what is mounted.
    pub path: Option<String>,
    /// The waits of those who were traced, by what was done meanwhile.
    pub stalls: BTreeMap<ReclaimKind, StallStats>,
    /// Its memory, where that could be read.
    pub memory: Option<MemcgMemory>,
}

impl MemcgProfile {
    /// Its waits, all kinds together.
    #[must_use]
    pub fn all(&self) -> StallStats {
        StallStats::sum(self.stalls.values())
    }
}

/// The memory of a control group, and what became of it while it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcgMemory {
    /// Whether it is of version 2 of control groups, or else of version 1.
    pub version_2: bool,
    /// How much it may use; `None` where there is no limit of its own.
    pub limit: Option<Bytes>,
    /// From where on it is slowed down, with its pages looked for; `None` where there is no such mark.
    pub high: Option<Bytes>,
    /// How much it uses.
    pub current: Option<Bytes>,
    /// For how long it was looked at: from the beginning where it had a limit then, else since something waited in it.
    pub watched: Duration,
    /// Pages that came back soon after they were freed, meanwhile; `None` where the kernel does not tell.
    pub refaults: Option<u64>,
    /// How long its tasks waited for memory, meanwhile; `None` where the kernel does not tell.
    pub pressure: Option<PressureTime>,
    /// Second by second: whether pages were scanned for its limit, by whomever, and whether pages were brought back.
    pub seconds: PerSecond,
}

impl MemcgMemory {
    /// What is reached first, of its limit and the mark from which on it is slowed down.
    #[must_use]
    pub fn effective_limit(&self) -> Option<Bytes> {
        self.limit.into_iter().chain(self.high).min()
    }
}
