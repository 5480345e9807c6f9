//! Memory limits of the measured processes. Reclaim at such a limit does not mean that the machine lacks memory.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use memtrace_host::procfs::{GroupReading, MemoryGroups};
use memtrace_model::{Bytes, LimitedGroup, PerSecond, Pid, VmCounters};

/// Maximum number of cgroups. Reading one cgroup takes tens of microseconds.
const MOST: usize = 1024;

/// Reader of the cgroups with limits, once a second.
pub(super) struct LimitReader {
    /// Hierarchy with the memory controller; `None` if none is mounted.
    hierarchy: Option<MemoryGroups>,
    groups: BTreeMap<PathBuf, Group>,
    /// Largest number of cgroups beyond [`MOST`].
    left_out: u64,
}

struct Group {
    limit: Bytes,
    last: GroupReading,
    seconds: PerSecond,
}

impl LimitReader {
    pub(super) fn start() -> Self {
        Self { hierarchy: MemoryGroups::find(), groups: BTreeMap::new(), left_out: 0 }
    }

    /// Adds the cgroups of processes that have limits, and their ancestors.
    pub(super) fn watch(&mut self, pids: &[Pid]) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let (mut examined, mut left_out) = (HashSet::new(), 0);
        for group in pids.iter().filter_map(|&pid| hierarchy.of(pid)) {
            for path in group.ancestors() {
                // The ancestors of an examined cgroup are examined, too.
                if !examined.insert(path.to_owned()) {
                    break;
                }
                if self.groups.contains_key(path) || !hierarchy.is_limited(path) {
                    continue;
                }
                if self.groups.len() == MOST {
                    left_out += 1;
                    continue;
                }
                if let Some((limit, last)) = hierarchy.read(path).and_then(|last| Some((limit_of(&last)?, last))) {
                    self.groups.insert(path.to_owned(), Group { limit, last, seconds: PerSecond::default() });
                }
            }
        }
        if left_out > 0 && self.left_out == 0 {
            log::warn!("more than {MOST} cgroups have memory limits; the limits of the others are not watched");
        }
        self.left_out = self.left_out.max(left_out);
    }

    /// Returns the number of cgroups with limits that are not watched.
    pub(super) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ends a second. Cgroups that were removed, or have no limit any more, are left out.
    pub(super) fn end_second(&mut self) {
        let Some(hierarchy) = &self.hierarchy else { return };
        self.groups.retain(|path, group| hierarchy.read(path).is_some_and(|reading| group.end_second(reading)));
    }

    /// Returns the cgroups with their seconds so far.
    pub(super) fn result(&self) -> Vec<LimitedGroup> {
        let group = |(path, group): (&PathBuf, &Group)| LimitedGroup {
            path: path.to_string_lossy().into_owned(),
            limit: group.limit,
            seconds: group.seconds,
        };
        self.groups.iter().map(group).collect()
    }
}

/// Returns the lowest limit of a cgroup. The kernel reclaims memory at `memory.high`, too.
fn limit_of(reading: &GroupReading) -> Option<Bytes> {
    reading.limit.into_iter().chain(reading.high).min()
}

impl Group {
    /// Ends a second. Returns false if the cgroup has no limit any more.
    fn end_second(&mut self, reading: GroupReading) -> bool {
        let Some(limit) = limit_of(&reading) else { return false };
        let growth =
            |now: Option<u64>, then: Option<u64>| now.zip(then).map_or(0, |(now, then)| now.saturating_sub(then));
        let refaults = growth(reading.refaults, self.last.refaults);
        let reached = match reading.reached {
            Some(_) => growth(reading.reached, self.last.reached),
            // Without this counter, refaults count as reclaim at the limit if the cgroup uses almost the whole limit.
            None => u64::from(refaults > 0 && reading.current.is_some_and(|current| current.0 >= limit.0 / 8 * 7)),
        };
        let refaults = if reached > 0 { refaults } else { 0 };
        self.seconds.add(&VmCounters { scanned: reached, refaults, ..VmCounters::default() });
        (self.limit, self.last) = (limit, reading);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_that_reaches_its_limit_pages_for_it() {
        let reading = |reached, refaults| GroupReading {
            limit: Some(Bytes(64 << 20)),
            high: Some(Bytes(60 << 20)),
            current: Some(Bytes(60 << 20)),
            reached: Some(reached),
            refaults: Some(refaults),
            ..GroupReading::default()
        };
        let last = reading(7, 1000);
        let mut group = Group { limit: limit_of(&last).unwrap(), last, seconds: PerSecond::default() };
        assert!(group.end_second(reading(7, 2000)));
        assert!(group.end_second(reading(8, 3000)));
        assert!(group.end_second(reading(9, 3001)));
        assert_eq!(group.limit, Bytes(60 << 20));
        assert_eq!(group.seconds, PerSecond { all: 3, scanning: 2, paging: 1 });
        assert!(!group.end_second(GroupReading::default()));
    }

    #[test]
    fn without_a_counter_refaults_near_the_limit_are_at_it() {
        let reading = |current: u64, refaults| GroupReading {
            limit: Some(Bytes(64 << 20)),
            current: Some(Bytes(current << 20)),
            refaults: Some(refaults),
            ..GroupReading::default()
        };
        let last = reading(60, 0);
        let mut group = Group { limit: limit_of(&last).unwrap(), last, seconds: PerSecond::default() };
        for (current, refaults) in [(60, 0), (40, 1000), (60, 2000)] {
            assert!(group.end_second(reading(current, refaults)));
        }
        assert_eq!(group.seconds, PerSecond { all: 3, scanning: 1, paging: 1 });
    }
}
