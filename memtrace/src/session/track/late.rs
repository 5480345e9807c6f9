//! Who had an allocator before it was probed. Pure.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::Pid;

/// The allocators that were found while tracing, and who came before their probes.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Since when each is probed, by its object's handle and the monotonic clock; `None`: it is not yet.
    probed: HashMap<PathBuf, Option<Duration>>,
    known: HashSet<(Pid, PathBuf)>,
}

impl Late {
    /// An allocator was found that is not probed.
    pub(super) fn found(&mut self, handle: &Path) {
        self.probed.insert(handle.to_owned(), None);
    }

    /// From `now` on it is.
    pub(super) fn placed(&mut self, handle: &Path, now: Duration) {
        if let Some(since) = self.probed.get_mut(handle) {
            since.get_or_insert(now);
        }
    }

    /// `pid` has mapped an object at `time`. Whether it is, for the first time, one of these, and was not probed then.
    pub(super) fn is(&mut self, pid: Pid, handle: &Path, time: Duration) -> bool {
        let is_late = self.probed.get(handle).is_some_and(|since| since.is_none_or(|since| time < since));
        is_late && self.known.insert((pid, handle.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_maps_an_allocator_before_it_is_probed_is_late_once() {
        let (mut late, handle) = (Late::default(), Path::new("/proc/self/fd/7"));
        let second = Duration::from_secs;
        assert!(!late.is(Pid(1), handle, second(1)), "it was probed from the beginning");
        late.found(handle);
        assert!(late.is(Pid(1), handle, second(2)));
        assert!(!late.is(Pid(1), handle, second(2)), "it was counted");
        late.placed(handle, second(5));
        // Heard of only afterwards.
        assert!(late.is(Pid(2), handle, second(4)));
        assert!(!late.is(Pid(3), handle, second(5)));
        assert!(!late.is(Pid(4), Path::new("/proc/self/fd/8"), second(1)));
    }
}
