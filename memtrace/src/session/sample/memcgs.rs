//! The control groups in which something waits for memory: their memory at the beginning, second by second, and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use crate::model::{CgroupId, MemcgMemory, PerSecond, PressureTime, Profile, VmCounters};
use crate::procfs::{GroupReading, MemoryGroups};

/// So many groups with limits are looked at from the beginning. Reading what one says of its memory takes the kernel tens of
/// microseconds.
const MAX_AT_ONCE: usize = 512;

/// What is told of each group: its path, and its memory.
pub(in crate::session) type Groups = BTreeMap<CgroupId, (PathBuf, MemcgMemory)>;

/// Looks up the paths of the control groups of who was killed.
pub(in crate::session) fn name_kills(profile: &mut Profile) {
    let wanted: BTreeSet<_> = profile.oom_kills.iter().flat_map(|kill| [kill.group, kill.full]).flatten().collect();
    let hierarchy = if wanted.is_empty() { None } else { MemoryGroups::find() };
    let found = hierarchy.iter().flat_map(MemoryGroups::all).filter(|(id, _)| wanted.contains(id));
    profile.cgroup_paths = found.map(|(id, path)| (id, path.to_string_lossy().into_owned())).collect();
}

/// Looks at the memory of control groups.
#[derive(Debug)]
pub(in crate::session) struct GroupReader {
    /// `None` where no hierarchy with the memory controller is mounted.
    hierarchy: Option<MemoryGroups>,
    watched: BTreeMap<CgroupId, Watched>,
    /// Those in which something waited and that could not be found: they were removed, or lie outside of what is mounted.
    gone: BTreeSet<CgroupId>,
    /// What was scanned for the limit of each, up to the last second.
    scanned: BTreeMap<CgroupId, u64>,
}

/// One group.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    since: Instant,
    before: GroupReading,
    /// As of the last second, or since it was found.
    last: GroupReading,
    seconds: PerSecond,
}

impl GroupReader {
    /// Reads what the groups that have limits say: only they can be kept waiting for one.
    pub(in crate::session) fn begin() -> Self {
        let mut reader = Self {
            hierarchy: MemoryGroups::find(),
            watched: BTreeMap::new(),
            gone: BTreeSet::new(),
            scanned: BTreeMap::new(),
        };
        let Some(hierarchy) = &reader.hierarchy else { return reader };
        let now = Instant::now();
        let limited = hierarchy.all().into_iter().filter(|(_, path)| hierarchy.is_limited(path));
        let read = limited.take(MAX_AT_ONCE).filter_map(|(id, path)| Some((id, Watched::begin(hierarchy, path, now)?)));
        reader.watched = read.collect();
        reader
    }

    /// Takes up the groups in which something has waited since; they may be gone soon.
    pub(in crate::session) fn find(&mut self, scanned: &BTreeMap<CgroupId, u64>, now: Instant) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let is_new = |id: &CgroupId| !self.watched.contains_key(id) && !self.gone.contains(id);
        let mut new: BTreeSet<CgroupId> = scanned.keys().copied().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        for (id, path) in hierarchy.all() {
            if new.contains(&id)
                && let Some(watched) = Watched::begin(hierarchy, path, now)
            {
                self.watched.insert(id, watched);
                new.remove(&id);
            }
        }
        self.gone.append(&mut new);
    }

    /// Counts a second, up to which so much was `scanned` for the limit of each group.
    pub(in crate::session) fn second(&mut self, scanned: BTreeMap<CgroupId, u64>) {
        let Some(hierarchy) = &self.hierarchy else { return };
        for (id, watched) in &mut self.watched {
            let before = self.scanned.get(id).copied().unwrap_or(0);
            let now = scanned.get(id).copied().unwrap_or(before);
            // Of a group in which nothing waits nothing is told.
            let reading = if scanned.contains_key(id) { hierarchy.read(&watched.path) } else { None };
            watched.second(now.saturating_sub(before), reading);
        }
        self.scanned = scanned;
    }

    /// What has become of each group in which something waited.
    pub(in crate::session) fn end(self, scanned: &BTreeMap<CgroupId, u64>, now: Instant) -> Groups {
        let Some(hierarchy) = &self.hierarchy else { return Groups::new() };
        let waited = self.watched.into_iter().filter(|(id, _)| scanned.contains_key(id));
        let end = |(id, watched): (CgroupId, Watched)| {
            let last = hierarchy.read(&watched.path).unwrap_or(watched.last);
            (id, watched.end(last, hierarchy.is_version_2(), now))
        };
        waited.map(end).collect()
    }
}

impl Watched {
    fn begin(hierarchy: &MemoryGroups, path: PathBuf, since: Instant) -> Option<Self> {
        let before = hierarchy.read(&path)?;
        Some(Self { path, since, before, last: before, seconds: PerSecond::default() })
    }

    fn second(&mut self, scanned: u64, reading: Option<GroupReading>) {
        let reading = reading.unwrap_or(self.last);
        let refaults = reading.refaults.zip(self.last.refaults).map_or(0, |(now, then)| now.saturating_sub(then));
        self.seconds.add(&VmCounters { scanned, refaults, ..VmCounters::default() });
        self.last = reading;
    }

    fn end(self, last: GroupReading, version_2: bool, now: Instant) -> (PathBuf, MemcgMemory) {
        let memory = MemcgMemory {
            version_2,
            limit: last.limit,
            high: last.high,
            current: last.current,
            watched: now.saturating_duration_since(self.since),
            refaults: last.refaults.zip(self.before.refaults).map(|(now, before)| now.saturating_sub(before)),
            pressure: last.pressure.zip(self.before.pressure).map(|(now, before)| PressureTime::between(&before, &now)),
            seconds: self.seconds,
        };
        (self.path, memory)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Assessment, Bytes, Pressure, Stalled};

    fn reading(refaults: u64, waited: u64) -> GroupReading {
        let some = Stalled { total: Duration::from_secs(waited), ..Stalled::default() };
        GroupReading {
            limit: Some(Bytes(64 << 20)),
            current: Some(Bytes(63 << 20)),
            refaults: Some(refaults),
            pressure: Some(Pressure { some, full: None }),
            ..GroupReading::default()
        }
    }

    fn watched(before: GroupReading) -> Watched {
        let path = PathBuf::from("/jobs/small");
        Watched { path, since: Instant::now(), before, last: before, seconds: PerSecond::default() }
    }

    #[test]
    fn what_came_while_a_group_was_looked_at_counts_and_what_was_before_does_not() {
        let mut group = watched(reading(1000, 5));
        for second in 1..=4 {
            group.second(32, Some(reading(1000 + second * 300, 5 + second)));
        }
        assert_eq!(group.seconds.assessment(), Assessment::Beyond);
        let now = group.since + Duration::from_secs(5);
        let (path, memory) = group.end(reading(2400, 10), true, now);
        assert_eq!(
            (path.to_str(), memory.watched, memory.refaults),
            (Some("/jobs/small"), Duration::from_secs(5), Some(1400))
        );
        assert_eq!(memory.pressure.map(|pressure| pressure.some), Some(Duration::from_secs(5)));
        assert_eq!((memory.limit, memory.current), (Some(Bytes(64 << 20)), Some(Bytes(63 << 20))));
    }

    #[test]
    fn what_a_group_does_not_tell_stays_untold() {
        let mut group = watched(GroupReading::default());
        for _ in 0..4 {
            group.second(32, None);
        }
        assert_eq!(group.seconds.assessment(), Assessment::Near);
        let now = group.since;
        let (_, memory) = group.end(GroupReading::default(), false, now);
        assert_eq!((memory.refaults, memory.pressure, memory.limit), (None, None, None));
    }
}
