//! Indices in the maps of counters.

/// Number of counters of allocation calls by size: one for each power of two.
pub const SIZE_CLASSES: u32 = 64;

/// Returns the index of the counter for calls of `size` bytes: the binary logarithm, rounded down; 0 for size 0.
#[inline(always)]
#[must_use]
pub const fn size_class(size: u64) -> u32 {
    (SIZE_CLASSES - 1) - (size | 1).leading_zeros()
}

/// Indices in the map of counters. The loss reasons have the first indices.
pub mod counter {
    use super::super::SYSCALL_TRACEPOINTS;
    use crate::vocabulary::LossReason;

    /// Number of allocations that the size filter or the thread filter has excluded.
    pub const FILTERED: u32 = LossReason::COUNT as u32;
    /// Bytes of the excluded allocations.
    pub const FILTERED_BYTES: u32 = FILTERED + 1;
    /// Number of allocator calls inside other allocator calls, which are not recorded.
    pub const NESTED: u32 = FILTERED + 2;
    /// Number of process events that the second or third redundant program has handled, because the kernel skipped
    /// the first one.
    pub const STOOD_IN: u32 = FILTERED + 3;
    /// Number of times that all programs at `sys_enter` were in progress on one CPU, so that the kernel may have
    /// skipped them for a call. The next index has the number for `sys_exit`.
    pub const ALL_BUSY: u32 = FILTERED + 4;
    /// Number of hits of probes at entries of allocator functions, or inside of them, in traced processes.
    pub const ENTRY_HITS: u32 = ALL_BUSY + SYSCALL_TRACEPOINTS;
    /// Number of hits of probes at returns of allocator functions, in traced processes.
    pub const RETURN_HITS: u32 = ENTRY_HITS + 1;
    /// Number of hits of probes of tags, spans and marks, in traced processes.
    pub const OTHER_HITS: u32 = ENTRY_HITS + 2;
    /// Number of counters.
    pub const COUNT: u32 = ENTRY_HITS + 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_class_is_the_binary_logarithm_of_the_size() {
        let classes = [0, 1, 2, 3, 4, 4095, 4096, u64::MAX].map(size_class);
        assert_eq!(classes, [0, 0, 1, 1, 2, 11, 12, 63]);
    }
}
