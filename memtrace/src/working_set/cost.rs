//! Time that clearing and reading take in a measurement.

use std::time::Duration;

use memtrace_model::format::short;
use memtrace_model::{ProcessWorkingSet, WorkingSets};

/// The estimated time may exceed the requested time by 1/`TOLERANCE` without a warning.
const TOLERANCE: u32 = 5;

/// Times of all readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    readings: u64,
    /// Longest time that clearing and reading one process took together.
    longest: Duration,
    /// Longest time that counting the page frames of all processes took.
    frames: Duration,
    /// Longest requested time from clearing to reading.
    requested: Duration,
    /// Longest estimated time of a process in the readings with this requested time.
    estimated: Duration,
}

impl Cost {
    /// Adds a reading.
    pub(super) fn add(&mut self, sets: &WorkingSets) {
        self.readings += 1;
        self.longest = self.longest.max(sets.longest_cost());
        self.frames = self.frames.max(sets.frames_time);
        let estimated = sets.processes.iter().map(ProcessWorkingSet::duration).max().unwrap_or_default();
        if sets.requested > self.requested {
            (self.requested, self.estimated) = (sets.requested, estimated);
        } else if sets.requested == self.requested {
            self.estimated = self.estimated.max(estimated);
        }
    }

    /// Returns true if no reading was added.
    pub(super) const fn is_empty(&self) -> bool {
        self.readings == 0
    }

    /// Returns the cost as a line.
    pub(super) fn text(&self) -> String {
        let frames = if self.frames.is_zero() {
            String::new()
        } else {
            format!(", and counting page frames {} for all", short(self.frames))
        };
        format!("clearing and reading took at most {} for a process{frames}", short(self.longest))
    }

    /// Returns a warning if references were counted for much longer than requested. This happens if clearing and
    /// reading one process, or many processes one after the other, took too long.
    pub(super) fn warning(&self) -> Option<String> {
        let is_late = self.estimated > self.requested + self.requested / TOLERANCE || self.longest > self.requested;
        is_late.then(|| {
            format!(
                "references within {} are counted instead of the requested {}, because clearing and reading take long",
                short(self.estimated),
                short(self.requested)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Comm, Pid};

    use super::*;

    fn reading(requested: u64, cleared: u64, read: u64) -> WorkingSets {
        let milliseconds = Duration::from_millis;
        let process = ProcessWorkingSet {
            pid: Pid(7),
            comm: Comm::from("server"),
            cleared: Duration::ZERO..milliseconds(cleared),
            read: milliseconds(cleared + requested)..milliseconds(cleared + requested + read),
            kinds: Vec::new(),
            hugetlb: Default::default(),
            locked: None,
            paused: false,
            sizes_time: Duration::ZERO,
        };
        WorkingSets { requested: milliseconds(requested), processes: vec![process], ..WorkingSets::default() }
    }

    #[test]
    fn long_clearing_and_reading_is_a_warning() {
        let mut cost = Cost::default();
        assert!(cost.is_empty());
        cost.add(&reading(1000, 50, 50));
        assert_eq!(
            (cost.text().as_str(), cost.warning()),
            ("clearing and reading took at most 100 ms for a process", None)
        );
        let sets = WorkingSets { frames_time: Duration::from_millis(7), ..reading(1000, 300, 300) };
        cost.add(&sets);
        let expected = "clearing and reading took at most 600 ms for a process, and counting page frames 7 ms for all";
        assert_eq!(cost.text(), expected);
        let expected =
            "references within 1.3 s are counted instead of the requested 1 s, because clearing and reading take long";
        assert_eq!(cost.warning().as_deref(), Some(expected));
    }

    #[test]
    fn short_steps_of_a_profile_are_no_warning() {
        let mut cost = Cost::default();
        cost.add(&reading(1, 50, 50));
        assert!(cost.warning().is_some());
        cost.add(&reading(1000, 50, 50));
        assert_eq!(cost.warning(), None);
    }
}
