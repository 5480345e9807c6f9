//! What the whole machine has done to find memory.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Nanoseconds, Pressure, ReclaimKind};

/// What was done, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimActivity {
    /// How often it ended.
    pub times: u64,
    /// How long it took.
    pub time: Nanoseconds,
    /// Inactive pages that were looked at.
    pub scanned: u64,
    /// Active pages that were looked at.
    pub scanned_active: u64,
    /// Inactive pages that were taken off their list.
    pub taken: u64,
    /// Pages that were freed.
    pub reclaimed: u64,
    /// Pages that are not active any more.
    pub deactivated: u64,
    /// Pages that were written out.
    pub written: u64,
}

/// What a kernel thread has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThread {
    /// Its name.
    pub name: String,
    /// What it did.
    pub work: ReclaimKind,
    /// How much. Only how often, how long, and what was scanned and reclaimed is kept of each thread.
    pub effort: ReclaimActivity,
}

/// Counters of the kernel's memory management, in pages or in times: what `/proc/vmstat` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// Inactive pages that were looked at.
    pub scanned: u64,
    /// Pages that were freed.
    pub reclaimed: u64,
    /// Pages that came back soon after they were freed: they belonged to the working set.
    pub refaults: u64,
    /// Pages that were read from swap.
    pub swapped_in: u64,
    /// Pages that were written to swap.
    pub swapped_out: u64,
    /// Touches of pages that had to wait for a device.
    pub major_faults: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
}

impl VmCounters {
    /// What has come since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            scanned: self.scanned.saturating_sub(earlier.scanned),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            refaults: self.refaults.saturating_sub(earlier.refaults),
            swapped_in: self.swapped_in.saturating_sub(earlier.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(earlier.swapped_out),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
        }
    }

    /// Pages that were taken out of memory and had to be brought back.
    #[must_use]
    pub const fn paged(&self) -> u64 {
        // What comes back from swap soon is among the refaults too.
        if self.refaults > self.swapped_in { self.refaults } else { self.swapped_in }
    }
}

/// For how long tasks waited for memory while tracing, as the kernel's pressure information has it: for the time that it
/// takes to look for pages, and to bring back what was taken out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureTime {
    /// At least one task waited.
    pub some: Duration,
    /// All tasks that had work waited; `None` where the kernel does not say.
    pub full: Option<Duration>,
}

impl PressureTime {
    /// From `earlier` to `now`.
    #[must_use]
    pub fn between(earlier: &Pressure, now: &Pressure) -> Self {
        let full = now.full.zip(earlier.full);
        Self {
            some: now.some.total.saturating_sub(earlier.some.total),
            full: full.map(|(now, earlier)| now.total.saturating_sub(earlier.total)),
        }
    }
}

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
    pub const fn reading(&self) -> Assessment {
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

/// What the whole machine has done to find memory while it was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineReclaim {
    /// By what was done; what was not done is missing.
    pub efforts: BTreeMap<ReclaimKind, ReclaimActivity>,
    /// The kernel's own threads, those first that took longest.
    pub threads: Vec<KernelThread>,
    /// What the kernel itself has counted.
    pub counters: VmCounters,
    /// Second by second.
    pub seconds: PerSecond,
    /// How long anyone on the machine waited; `None` where the kernel does not keep that.
    pub pressure: Option<PressureTime>,
    /// Tracepoints that the kernel does not have, so that what they tell is missing.
    pub missing: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(each: &[(u64, u64)]) -> Assessment {
        let mut seconds = PerSecond::default();
        for &(scanned, refaults) in each {
            seconds.add(&VmCounters { scanned, refaults, ..VmCounters::default() });
        }
        seconds.reading()
    }

    #[test]
    fn what_is_so_in_half_of_the_seconds_is_sustained() {
        assert_eq!(seconds(&[(9, 9999); 3]), Assessment::TooShort);
        assert_eq!(seconds(&[(0, 255); 4]), Assessment::Quiet);
        assert_eq!(seconds(&[(1, 0), (0, 0), (0, 0), (0, 0)]), Assessment::Bursts);
        assert_eq!(seconds(&[(1, 0), (0, 0), (1, 256), (0, 0)]), Assessment::Near);
        assert_eq!(seconds(&[(1, 256), (0, 0), (1, 256), (0, 0)]), Assessment::Beyond);
    }

    #[test]
    fn what_comes_back_from_swap_is_not_counted_twice() {
        let paged = |refaults, swapped_in| VmCounters { refaults, swapped_in, ..VmCounters::default() }.paged();
        assert_eq!((paged(7, 5), paged(0, 5), paged(5, 5)), (7, 5, 5));
    }
}
