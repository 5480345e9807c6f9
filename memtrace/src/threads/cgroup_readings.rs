//! Memory and pressure of the cgroups of monitored processes, for triggers.

use std::collections::BTreeSet;
use std::path::Path;

use memtrace_history::triggers::CgroupObservation;
use memtrace_host::procfs::MemoryGroups;
use memtrace_model::CgroupId;
use rustc_hash::FxHashMap;

/// Reader of the memory cgroups. If the machine has none, it returns no values.
pub(super) struct CgroupReadings {
    groups: Option<MemoryGroups>,
    /// Total of `some` in the PSI of each cgroup at the last reading, in nanoseconds: the time while at least one
    /// task waited for memory.
    last_pressure: FxHashMap<CgroupId, u64>,
}

impl CgroupReadings {
    pub(super) fn new() -> Self {
        Self { groups: MemoryGroups::find(), last_pressure: FxHashMap::default() }
    }

    /// Returns the values of the cgroups with these paths. A cgroup has no pressure at its first reading.
    pub(super) fn read(&mut self, paths: BTreeSet<&str>) -> Vec<CgroupObservation> {
        let Some(groups) = &self.groups else { return Vec::new() };
        let mut pressures = FxHashMap::default();
        let mut observations = Vec::new();
        for path in paths {
            let Some((id, reading)) = groups.usage(Path::new(path)) else { continue };
            let total = reading.pressure.map(|pressure| pressure.some.total_ns());
            let before = self.last_pressure.get(&id).copied();
            observations.push(CgroupObservation {
                id,
                path: path.to_owned(),
                memory: reading.current.map(|bytes| bytes.0),
                pressure: total.zip(before).map(|(total, before)| total.saturating_sub(before)),
            });
            pressures.extend(total.map(|total| (id, total)));
        }
        self.last_pressure = pressures;
        observations
    }
}
