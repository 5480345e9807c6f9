//! The table of counters of a thread.

/// A counter of a thread. It only grows while the thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum UsageCounter {
    /// Bytes of allocated blocks: usable bytes if the allocator stores them, else requested bytes.
    AllocBytes,
    /// Number of allocated blocks.
    AllocCount,
    /// Bytes of the blocks that the thread has freed, including blocks of other threads.
    FreeBytes,
    /// Number of freed blocks.
    FreeCount,
    /// Processor time in user mode, in nanoseconds.
    UserTime,
    /// Processor time in the kernel, in nanoseconds.
    SystemTime,
    /// Time that the runnable thread waited for a processor, in nanoseconds.
    RunDelay,
    /// Context switches because the thread waited for something.
    VoluntarySwitches,
    /// Context switches because another thread was to run.
    InvoluntarySwitches,
    /// Bytes read from storage.
    ReadBytes,
    /// Bytes written, which the kernel sends to storage later.
    WriteBytes,
    /// Page faults without I/O.
    MinorFaults,
    /// Page faults with I/O.
    MajorFaults,
}

impl UsageCounter {
    /// Number of counters.
    pub const COUNT: usize = 13;

    /// All counters, ordered like the columns.
    pub const ALL: [Self; Self::COUNT] = [
        Self::AllocBytes,
        Self::AllocCount,
        Self::FreeBytes,
        Self::FreeCount,
        Self::UserTime,
        Self::SystemTime,
        Self::RunDelay,
        Self::VoluntarySwitches,
        Self::InvoluntarySwitches,
        Self::ReadBytes,
        Self::WriteBytes,
        Self::MinorFaults,
        Self::MajorFaults,
    ];

    /// Returns the name in CSV, JSON and recordings. Names of bytes and times end with the unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllocBytes => "alloc_bytes",
            Self::AllocCount => "alloc_count",
            Self::FreeBytes => "free_bytes",
            Self::FreeCount => "free_count",
            Self::UserTime => "user_ns",
            Self::SystemTime => "system_ns",
            Self::RunDelay => "run_delay_ns",
            Self::VoluntarySwitches => "voluntary_switches",
            Self::InvoluntarySwitches => "involuntary_switches",
            Self::ReadBytes => "read_bytes",
            Self::WriteBytes => "write_bytes",
            Self::MinorFaults => "minor_faults",
            Self::MajorFaults => "major_faults",
        }
    }

    /// Returns true for the counters of the heap, which come from probes or from the allocator. The kernel maintains
    /// the other counters.
    #[must_use]
    pub const fn is_of_heap(self) -> bool {
        matches!(self, Self::AllocBytes | Self::AllocCount | Self::FreeBytes | Self::FreeCount)
    }

    /// Returns true for numbers of blocks, which allocators do not count per thread.
    #[must_use]
    pub(crate) const fn counts_blocks(self) -> bool {
        matches!(self, Self::AllocCount | Self::FreeCount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_listed_in_order() {
        assert!(UsageCounter::ALL.iter().enumerate().all(|(place, counter)| *counter as usize == place));
    }
}
