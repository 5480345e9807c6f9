//! Counters of the kernel in `/proc/vmstat`.

/// Counters of `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// Number of scanned inactive pages.
    pub scanned: u64,
    /// Pages scanned by kswapd, plus direct reclaims: 0 if the machine had enough memory. Reclaim at limits of cgroups does
    /// not count.
    pub machine_reclaim: u64,
    /// Number of reclaimed pages.
    pub reclaimed: u64,
    /// Number of refaults: pages that were read again soon after their reclaim, so that they belong to the working set.
    pub refaults: u64,
    /// Number of pages read from swap.
    pub swapped_in: u64,
    /// Number of pages written to swap.
    pub swapped_out: u64,
    /// Number of major faults.
    pub major_faults: u64,
    /// Number of OOM kills.
    pub oom_kills: u64,
    /// Number of runs of kswapd. The kernel wakes kswapd when free memory falls below the low watermark.
    pub kswapd_runs: u64,
}

impl VmCounters {
    /// Returns the increase since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            scanned: self.scanned.saturating_sub(earlier.scanned),
            machine_reclaim: self.machine_reclaim.saturating_sub(earlier.machine_reclaim),
            reclaimed: self.reclaimed.saturating_sub(earlier.reclaimed),
            refaults: self.refaults.saturating_sub(earlier.refaults),
            swapped_in: self.swapped_in.saturating_sub(earlier.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(earlier.swapped_out),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            kswapd_runs: self.kswapd_runs.saturating_sub(earlier.kswapd_runs),
        }
    }

    /// Returns the counters of reclaim for the machine. The counters of refaults and swap include cgroups at their
    /// limits, so they are 0 unless the machine was short of memory at that time.
    #[must_use]
    pub const fn of_machine(&self) -> Self {
        let (refaults, swapped_in) = if self.machine_reclaim > 0 { (self.refaults, self.swapped_in) } else { (0, 0) };
        Self { scanned: self.machine_reclaim, refaults, swapped_in, ..*self }
    }

    /// Returns the number of pages that were evicted and read again.
    #[must_use]
    pub(crate) const fn paged(&self) -> u64 {
        // A refault from swap is in both counters, so the counters are not added.
        if self.refaults > self.swapped_in { self.refaults } else { self.swapped_in }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refaults_from_swap_are_not_counted_twice() {
        let paged = |refaults, swapped_in| VmCounters { refaults, swapped_in, ..VmCounters::default() }.paged();
        assert_eq!((paged(7, 5), paged(0, 5), paged(5, 5)), (7, 5, 5));
    }

    #[test]
    fn reclaim_for_limits_is_not_that_of_the_machine() {
        let seen = VmCounters { scanned: 9, refaults: 7, swapped_in: 5, ..VmCounters::default() };
        let of_machine = seen.of_machine();
        assert_eq!((of_machine.scanned, of_machine.paged()), (0, 0));
        let short = VmCounters { machine_reclaim: 2, ..seen }.of_machine();
        assert_eq!((short.scanned, short.paged()), (2, 7));
    }
}
