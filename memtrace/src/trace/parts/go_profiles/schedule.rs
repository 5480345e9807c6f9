//! Times of the next readings of heap profiles.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use memtrace_model::{Bytes, ImageId};

/// One process may be read for at most one part in this number of the time.
const SHARE: u32 = 50;

/// Additional time between two readings of a process for each Go process. With 5,000 of them, memtrace makes 1,000 readings a
/// second.
const EACH: Duration = Duration::from_millis(1);

/// Processes in the order of their next reading. Of processes with the same time, the largest comes first.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeSet<(Instant, Reverse<Bytes>, ImageId)>);

impl Schedule {
    /// Adds the next reading of an image with the RSS `rss`.
    pub(super) fn add(&mut self, at: Instant, rss: Bytes, id: ImageId) {
        self.0.insert((at, Reverse(rss), id));
    }

    /// Removes and returns the first image, if its reading is due at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<ImageId> {
        let &(at, _, id) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.pop_first();
        Some(id)
    }

    /// Removes all images, the largest first.
    pub(super) fn take_all(&mut self) -> Vec<ImageId> {
        let mut all: Vec<_> = std::mem::take(&mut self.0).into_iter().map(|(_, rss, id)| (rss, id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id).collect()
    }
}

/// Returns the time between two readings of a process. `interval`: the shortest time. `processes`: number of Go processes.
/// `took`: duration of the last reading.
pub(super) fn pause(interval: Duration, processes: usize, took: Duration) -> Duration {
    let of_all = EACH.saturating_mul(u32::try_from(processes).unwrap_or(u32::MAX));
    interval.max(of_all).max(took.saturating_mul(SHARE))
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(pid: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal: 0 }
    }

    #[test]
    fn the_largest_due_process_is_first() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        for (pid, rss, second) in [(1, 10, 0), (2, 30, 0), (3, 20, 0), (4, 90, 1)] {
            schedule.add(start + SECOND * second, Bytes(rss), id(pid));
        }
        let due = [0, 0, 0, 0, 1, 1].map(|second| schedule.take_due(start + SECOND * second));
        assert_eq!(due, [Some(id(2)), Some(id(3)), Some(id(1)), None, Some(id(4)), None]);
        for (pid, rss, second) in [(1, 10, 0), (2, 30, 5)] {
            schedule.add(start + SECOND * second, Bytes(rss), id(pid));
        }
        assert_eq!(schedule.take_all(), [id(2), id(1)]);
        assert_eq!(schedule.take_due(start + 9 * SECOND), None);
    }

    #[test]
    fn readings_take_a_bounded_share_of_the_time() {
        assert_eq!(pause(SECOND, 10, Duration::from_millis(2)), SECOND);
        assert_eq!(pause(SECOND, 5000, Duration::from_millis(2)), 5 * SECOND);
        assert_eq!(pause(SECOND, 10, Duration::from_millis(200)), 10 * SECOND);
        assert_eq!(pause(10 * SECOND, 10, Duration::from_millis(20)), 10 * SECOND);
    }
}
