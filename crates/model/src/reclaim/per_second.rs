//! Seconds with scanning and paging, and their assessment.

use crate::VmCounters;

/// Number of all seconds of a trace, of seconds with scanned pages, and of seconds with paging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerSecond {
    /// Number of all seconds.
    pub all: u64,
    /// Number of seconds with scanned pages.
    pub scanning: u64,
    /// Number of seconds with at least 1 MiB of pages that were evicted and read again.
    pub paging: u64,
}

/// Assessment of the working set against the available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// There are too few seconds.
    TooShort,
    /// No page was scanned.
    Quiet,
    /// Pages were scanned in less than half of the seconds.
    Bursts,
    /// Pages were scanned in at least half of the seconds: the working set is near the available memory.
    Near,
    /// Evicted pages were read again in at least half of the seconds: the working set exceeds the available memory.
    Beyond,
}

impl PerSecond {
    /// Minimum number of evicted pages that are read again in a second with paging: 1 MiB.
    pub(crate) const PAGED: u64 = 256;
    /// Minimum number of seconds for an assessment.
    pub const LEAST: u64 = 4;

    /// Adds a second. `since` has the increases of the counters in this second.
    pub const fn add(&mut self, since: &VmCounters) {
        self.all += 1;
        self.scanning += (since.scanned > 0) as u64;
        self.paging += (since.paged() >= Self::PAGED) as u64;
    }

    /// Returns the assessment. Scanning and paging are sustained if they occurred in at least half of the seconds.
    #[must_use]
    pub const fn assessment(&self) -> Assessment {
        self.assessment_after(Self::LEAST)
    }

    /// Returns the assessment as [`PerSecond::assessment`] does, with another minimum number of seconds.
    #[must_use]
    pub const fn assessment_after(&self, least: u64) -> Assessment {
        if self.all < least {
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
    fn half_of_the_seconds_is_sustained() {
        assert_eq!(seconds(&[(9, 9999); 3]), Assessment::TooShort);
        assert_eq!(seconds(&[(0, 255); 4]), Assessment::Quiet);
        assert_eq!(seconds(&[(1, 0), (0, 0), (0, 0), (0, 0)]), Assessment::Bursts);
        assert_eq!(seconds(&[(1, 0), (0, 0), (1, 256), (0, 0)]), Assessment::Near);
        assert_eq!(seconds(&[(1, 256), (0, 0), (1, 256), (0, 0)]), Assessment::Beyond);
    }
}
