//! Reads the memory of memcgs with processes that wait for reclaim: at the start, each second and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use memtrace_host::procfs::{GroupReading, MemoryGroups};
use memtrace_model::{CgroupId, MemcgMemory, PerSecond, PressureTime, VmCounters};

use crate::trace::facts::Memcgs;

/// Maximum number of memcgs with limits that are read at the start. The kernel takes tens of microseconds to read the
/// counters of one memcg.
const MAX_AT_START: usize = 512;

/// Reader of the memory of memcgs during a run.
#[derive(Debug)]
pub(super) struct MemcgReader {
    /// Hierarchy with the memory controller; `None` if none is mounted.
    hierarchy: Option<MemoryGroups>,
    /// Readings of the watched memcgs. Their number is bounded by [`MAX_AT_START`] and the size of
    /// the BPF map of scanned pages.
    watched: BTreeMap<CgroupId, Watch>,
    /// Memcgs that a process waited for and that were not found: they were removed, or are outside of the mounted
    /// hierarchy. Their number is bounded by the size of the BPF map of scanned pages.
    missing: BTreeSet<CgroupId>,
    /// Number of pages scanned by reclaim for the limit of each memcg, up to the end of the last second.
    scanned: BTreeMap<CgroupId, u64>,
}

/// Readings of one memcg.
#[derive(Debug)]
struct Watch {
    path: PathBuf,
    /// True if the memcg had a limit when the run started.
    is_from_start: bool,
    since: Instant,
    first: GroupReading,
    /// Reading at the end of the last second.
    last: GroupReading,
    seconds: PerSecond,
}

impl MemcgReader {
    /// Reads up to [`MAX_AT_START`] memcgs that have limits. Processes wait only for the limits of such memcgs.
    pub(super) fn start() -> Self {
        let mut reader = Self {
            hierarchy: MemoryGroups::find(),
            watched: BTreeMap::new(),
            missing: BTreeSet::new(),
            scanned: BTreeMap::new(),
        };
        let Some(hierarchy) = &reader.hierarchy else { return reader };
        let now = Instant::now();
        let limited = hierarchy.all().into_iter().filter(|(_, path)| hierarchy.is_limited(path));
        let read =
            limited.take(MAX_AT_START).filter_map(|(id, path)| Some((id, Watch::start(hierarchy, path, true, now)?)));
        reader.watched = read.collect();
        reader
    }

    /// Adds the memcgs that processes have waited for since the last call. Frequent calls find short-lived memcgs too.
    pub(super) fn add_new(&mut self, scanned: &BTreeMap<CgroupId, u64>, now: Instant) {
        let Some(hierarchy) = &self.hierarchy else { return };
        retain_scanned(&mut self.missing, scanned);
        self.watched.retain(|id, watch| watch.is_from_start || scanned.contains_key(id));
        let is_new = |id: &CgroupId| !self.watched.contains_key(id) && !self.missing.contains(id);
        let mut new: BTreeSet<CgroupId> = scanned.keys().copied().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        for (id, path) in hierarchy.all() {
            if new.contains(&id)
                && let Some(watch) = Watch::start(hierarchy, path, false, now)
            {
                self.watched.insert(id, watch);
                new.remove(&id);
            }
        }
        self.missing.append(&mut new);
    }

    /// Ends a second. `scanned`: number of pages scanned so far by reclaim for the limit of each memcg.
    pub(super) fn end_second(&mut self, scanned: BTreeMap<CgroupId, u64>) {
        let Some(hierarchy) = &self.hierarchy else { return };
        for (id, watch) in &mut self.watched {
            let before = self.scanned.get(id).copied().unwrap_or(0);
            let now = scanned.get(id).copied().unwrap_or(before);
            // A memcg without waits is not in the report.
            let reading = if scanned.contains_key(id) { hierarchy.read(&watch.path) } else { None };
            watch.add_second(now.saturating_sub(before), reading);
        }
        self.scanned = scanned;
    }

    /// Returns the memory of each memcg that a process waited for.
    pub(super) fn finish(&mut self, scanned: &BTreeMap<CgroupId, u64>, now: Instant) -> Memcgs {
        let Some(hierarchy) = &self.hierarchy else { return Memcgs::new() };
        let waited = std::mem::take(&mut self.watched).into_iter().filter(|(id, _)| scanned.contains_key(id));
        let finish = |(id, watch): (CgroupId, Watch)| {
            let last = hierarchy.read(&watch.path).unwrap_or(watch.last);
            (id, watch.finish(last, hierarchy.is_version_2(), now))
        };
        waited.map(finish).collect()
    }
}

/// Removes the memcgs that the BPF map has dropped. The map evicts the least recently used memcgs.
fn retain_scanned(ids: &mut BTreeSet<CgroupId>, scanned: &BTreeMap<CgroupId, u64>) {
    ids.retain(|id| scanned.contains_key(id));
}

impl Watch {
    fn start(hierarchy: &MemoryGroups, path: PathBuf, is_from_start: bool, since: Instant) -> Option<Self> {
        let first = hierarchy.read(&path)?;
        Some(Self { path, is_from_start, since, first, last: first, seconds: PerSecond::default() })
    }

    fn add_second(&mut self, scanned: u64, reading: Option<GroupReading>) {
        let reading = reading.unwrap_or(self.last);
        let refaults = reading.refaults.zip(self.last.refaults).map_or(0, |(now, then)| now.saturating_sub(then));
        self.seconds.add(&VmCounters { scanned, refaults, ..VmCounters::default() });
        self.last = reading;
    }

    fn finish(self, last: GroupReading, version_2: bool, now: Instant) -> (PathBuf, MemcgMemory) {
        let memory = MemcgMemory {
            version_2,
            limit: last.limit,
            high: last.high,
            current: last.current,
            watched: now.saturating_duration_since(self.since),
            refaults: last.refaults.zip(self.first.refaults).map(|(now, first)| now.saturating_sub(first)),
            pressure: last.pressure.zip(self.first.pressure).map(|(now, first)| PressureTime::between(&first, &now)),
            seconds: self.seconds,
        };
        (self.path, memory)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{Assessment, Bytes, Pressure, Stalled};

    use super::*;

    fn reading(refaults: u64, stalled: u64) -> GroupReading {
        let some = Stalled { total: Duration::from_secs(stalled), ..Stalled::default() };
        GroupReading {
            limit: Some(Bytes(64 << 20)),
            current: Some(Bytes(63 << 20)),
            refaults: Some(refaults),
            pressure: Some(Pressure { some, full: None }),
            ..GroupReading::default()
        }
    }

    fn watch(first: GroupReading) -> Watch {
        let path = PathBuf::from("/jobs/small");
        Watch { path, is_from_start: false, since: Instant::now(), first, last: first, seconds: PerSecond::default() }
    }

    #[test]
    fn only_changes_since_the_first_reading_count() {
        let mut group = watch(reading(1000, 5));
        for second in 1..=4 {
            group.add_second(32, Some(reading(1000 + second * 300, 5 + second)));
        }
        assert_eq!(group.seconds.assessment(), Assessment::Beyond);
        let now = group.since + Duration::from_secs(5);
        let (path, memory) = group.finish(reading(2400, 10), true, now);
        assert_eq!(
            (path.to_str(), memory.watched, memory.refaults),
            (Some("/jobs/small"), Duration::from_secs(5), Some(1400))
        );
        assert_eq!(memory.pressure.map(|pressure| pressure.some), Some(Duration::from_secs(5)));
        assert_eq!((memory.limit, memory.current), (Some(Bytes(64 << 20)), Some(Bytes(63 << 20))));
    }

    #[test]
    fn missing_counters_stay_none() {
        let mut group = watch(GroupReading::default());
        for _ in 0..4 {
            group.add_second(32, None);
        }
        assert_eq!(group.seconds.assessment(), Assessment::Near);
        let now = group.since;
        let (_, memory) = group.finish(GroupReading::default(), false, now);
        assert_eq!((memory.refaults, memory.pressure, memory.limit), (None, None, None));
    }

    #[test]
    fn missing_memcgs_are_bounded_by_the_bpf_map() {
        let ids = |numbers: &[u64]| numbers.iter().filter_map(|&number| CgroupId::of(number)).collect::<BTreeSet<_>>();
        let mut missing = ids(&[1, 2, 3]);
        retain_scanned(&mut missing, &ids(&[2, 4]).into_iter().map(|id| (id, 1)).collect());
        assert_eq!(missing, ids(&[2]));
    }
}
