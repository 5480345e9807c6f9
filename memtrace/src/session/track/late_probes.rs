//! Processes that mapped an allocator before memtrace probed it. Pure.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::Pid;
use crate::session::bounded_set::BoundedSet;

/// The most counted processes that are remembered. After that, a process may be counted twice.
const MAX_COUNTED: usize = 1 << 16;

/// Allocators found while tracing, with the times of their probes.
#[derive(Debug)]
pub(super) struct LateProbes {
    /// Time of the probes by object handle, on the monotonic clock; `None` before they are placed.
    probed: HashMap<PathBuf, Option<Duration>>,
    counted: BoundedSet<(Pid, PathBuf)>,
}

impl Default for LateProbes {
    fn default() -> Self {
        Self { probed: HashMap::new(), counted: BoundedSet::new(MAX_COUNTED) }
    }
}

impl LateProbes {
    /// Adds an allocator that has no probes yet, or none in the process that maps it now.
    pub(super) fn add(&mut self, handle: &Path) {
        self.probed.insert(handle.to_owned(), None);
    }

    /// Records that the allocator has its probes since `now`.
    pub(super) fn set_probed(&mut self, handle: &Path, now: Duration) {
        if let Some(since) = self.probed.get_mut(handle) {
            since.get_or_insert(now);
        }
    }

    /// Forgets objects after their files were closed.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.probed.retain(|handle, _| !closed.contains(handle));
        self.counted.retain(|(_, handle)| !closed.contains(handle));
    }

    /// Returns true if `pid` mapped the object at `time`, before its probes, and was not counted for it.
    pub(super) fn count(&mut self, pid: Pid, handle: &Path, time: Duration) -> bool {
        let is_late = self.probed.get(handle).is_some_and(|since| since.is_none_or(|since| time < since));
        is_late && self.counted.insert((pid, handle.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_maps_before_the_probes_is_late_once() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        let second = Duration::from_secs;
        assert!(!late.count(Pid(1), handle, second(1)), "probed since the start");
        late.add(handle);
        assert!(late.count(Pid(1), handle, second(2)));
        assert!(!late.count(Pid(1), handle, second(2)), "counted before");
        late.set_probed(handle, second(5));
        // An event that arrives after the probes.
        assert!(late.count(Pid(2), handle, second(4)));
        assert!(!late.count(Pid(3), handle, second(5)));
        assert!(!late.count(Pid(4), Path::new("/proc/self/fd/8"), second(1)));
    }

    #[test]
    fn counted_processes_are_bounded() {
        let (mut late, handle) = (LateProbes::default(), Path::new("/proc/self/fd/7"));
        late.add(handle);
        let second = Duration::from_secs(1);
        assert!((0..=MAX_COUNTED as u32).all(|pid| late.count(Pid(pid), handle, second)));
        assert!(late.count(Pid(0), handle, second), "forgotten when the set was full");
    }
}
