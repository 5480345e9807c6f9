//! What the programs count instead of telling of it: where each counter lies in the kernel's tables.

/// How many counters of calls there are: one for each power of two that a size can reach.
pub const SIZE_CLASSES: u32 = 64;

/// Which counter counts a call for `size` bytes: the power of two at or below it.
#[inline(always)]
#[must_use]
pub const fn size_class(size: u64) -> u32 {
    (SIZE_CLASSES - 1) - (size | 1).leading_zeros()
}

/// Where counters lie in the kernel's table: first the loss reasons by their index, then these.
pub mod counter {
    use super::super::SYSCALL_TRACEPOINTS;
    use crate::vocabulary::LossReason;

    /// Allocations that the size filter kept out.
    pub const FILTERED: u32 = LossReason::COUNT as u32;
    /// Bytes of the allocations that the size filter kept out.
    pub const FILTERED_BYTES: u32 = FILTERED + 1;
    /// Allocator calls made inside another one, which are not counted.
    pub const NESTED: u32 = FILTERED + 2;
    /// Events at tracepoints that another program has seen, the first not having been run.
    pub const STOOD_IN: u32 = FILTERED + 3;
    /// Times that all programs which follow the beginning of system calls were in progress at once on one processor, so that a
    /// call there would have been seen by none; behind it, the same for their end.
    pub const ALL_BUSY: u32 = FILTERED + 4;
    /// How many counters there are.
    pub const COUNT: u32 = ALL_BUSY + SYSCALL_TRACEPOINTS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_counted_at_the_power_of_two_below_it() {
        let classes = [0, 1, 2, 3, 4, 4095, 4096, u64::MAX].map(size_class);
        assert_eq!(classes, [0, 0, 1, 1, 2, 11, 12, 63]);
    }
}
