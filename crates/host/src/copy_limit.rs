//! Limit of the copies of files in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use memtrace_model::Pid;

use crate::procfs;

/// Maximum size of a copy in bytes.
pub(crate) const MAX_COPY: u64 = 1 << 30;

/// Smallest limit in bytes, even if less memory is left.
const LEAST_COPY: u64 = 64 << 20;

/// Maximum age of a reading that is used again.
const VALID: Duration = Duration::from_secs(1);

/// Last reading. Later copies use it again, because it takes milliseconds to read the mounts of a machine with many containers.
static LAST: Mutex<Option<Reading>> = Mutex::new(None);

/// Memory that is left to the cgroup of memtrace.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    /// Free bytes at the time of the reading, less the bytes of later copies; `u64::MAX` if there is no limit.
    left: u64,
}

impl Reading {
    /// Reads the files of the cgroup. The page cache of the cgroup counts as free, because it can be reclaimed.
    fn now() -> Self {
        let at = Instant::now();
        let left = || {
            let group = procfs::cgroup_memory(Pid(std::process::id()))?;
            let limit = group.limit?;
            let used = limit.current.0.saturating_sub(group.counters.file.map_or(0, |file| file.0));
            Some(limit.most.0.saturating_sub(used))
        };
        Self { at, left: left().unwrap_or(u64::MAX) }
    }

    /// Returns true if the reading can be used at `now`. A reading that limits copies below the maximum is not used again.
    fn is_valid(self, now: Instant) -> bool {
        now.duration_since(self.at) < VALID && self.max_copy() == MAX_COPY
    }

    fn max_copy(self) -> u64 {
        (self.left / 2).clamp(LEAST_COPY, MAX_COPY)
    }
}

/// Returns the maximum size of copies in bytes: a half of the memory that is left to the cgroup of memtrace.
pub(crate) fn max_copy() -> u64 {
    let mut last = last();
    let reading = last.filter(|last| last.is_valid(Instant::now())).unwrap_or_else(Reading::now);
    *last = Some(reading);
    reading.max_copy()
}

/// Subtracts a copy of this size from the memory that is left.
pub(crate) fn add_copy(bytes: u64) {
    if let Some(last) = &mut *last() {
        last.left = last.left.saturating_sub(bytes);
    }
}

fn last() -> MutexGuard<'static, Option<Reading>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_used_while_it_permits_the_largest_copy() {
        let start = Instant::now();
        let reading = |left| Reading { at: start, left };
        assert!(reading(2 * MAX_COPY).is_valid(start));
        assert!(!reading(2 * MAX_COPY - 2).is_valid(start));
        assert!(!reading(u64::MAX).is_valid(start + VALID));
        assert_eq!(reading(0).max_copy(), LEAST_COPY);
        assert_eq!(reading(MAX_COPY).max_copy(), MAX_COPY / 2);
    }
}
