//! Seconds with scanning and paging, and their assessment.

use crate::model::VmCounters;

/// In how many of the seconds of a trace pages were looked for, and brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerSecond {
    /// How many there were.
    pub all: u64,
    /// In so many pages were scanned.
    pub scanning: u64,
    /// In so many at least [`PerSecond::PAGED`] pages were brought back.
    pub paging: u64,
}

/// What the seconds of a trace say of the size of what is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// There were too few seconds to say.
    TooShort,
    /// Nothing was looked for.
    Quiet,
    /// Pages were looked for now and then.
    Bursts,
    /// Pages were looked for most of the time: what is used is about as much as there is.
    Near,
    /// Pages were brought back most of the time: what is used is more than there is.
    Beyond,
}

impl PerSecond {
    /// A second counts as one of paging from so many pages on: 1 MiB.
    pub const PAGED: u64 = 256;
    /// Nothing is said of fewer seconds.
    pub const LEAST: u64 = 4;

    /// Adds a second in which the counters have come to `since`.
    pub const fn add(&mut self, since: &VmCounters) {
        self.all += 1;
        self.scanning += (since.scanned > 0) as u64;
        self.paging += (since.paged() >= Self::PAGED) as u64;
    }

    /// What they say: sustained is what was so in at least half of them.
    #[must_use]
    pub const fn assessment(&self) -> Assessment {
        if self.all < Self::LEAST {
            Assessment::TooShort
        } else if self.paging * 2 >= self.all {
            Assessment::Beyond
        } else if self.scanning * 2 >= self.all {
            Assessment::Near
        } else if self.scanning > 0 {
            Assessment::Bursts
        } else {
            Assessment::Quiet
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(each: &[(u64, u64)]) -> Assessment {
        let mut seconds = PerSecond::default();
        for &(scanned, refaults) in each {
            seconds.add(&VmCounters { scanned, refaults, ..VmCounters::default() });
        }
        seconds.assessment()
    }

    #[test]
    fn what_is_so_in_half_of_the_seconds_is_sustained() {
        assert_eq!(seconds(&[(9, 9999); 3]), Assessment::TooShort);
        assert_eq!(seconds(&[(0, 255); 4]), Assessment::Quiet);
        assert_eq!(seconds(&[(1, 0), (0, 0), (0, 0), (0, 0)]), Assessment::Bursts);
        assert_eq!(seconds(&[(1, 0), (0, 0), (1, 256), (0, 0)]), Assessment::Near);
        assert_eq!(seconds(&[(1, 256), (0, 0), (1, 256), (0, 0)]), Assessment::Beyond);
    }
}
