//! Counters of the kernel in `/proc/vmstat`.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_from_swap_is_not_counted_twice() {
        let paged = |refaults, swapped_in| VmCounters { refaults, swapped_in, ..VmCounters::default() }.paged();
        assert_eq!((paged(7, 5), paged(0, 5), paged(5, 5)), (7, 5, 5));
    }
}
