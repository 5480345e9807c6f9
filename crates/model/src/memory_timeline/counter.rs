//! Counters of the memory of a process.

/// Counter of the memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryCounter {
    /// Live memory of the event class.
    Live,
    /// Memory allocated since tracing began.
    Allocated,
    /// Resident anonymous memory.
    RssAnonymous,
    /// Resident pages of files.
    RssFile,
    /// Resident shared memory.
    RssShared,
    /// Swapped-out memory.
    Swap,
}

impl MemoryCounter {
    /// Every counter.
    pub const ALL: &[Self] =
        &[Self::Live, Self::Allocated, Self::RssAnonymous, Self::RssFile, Self::RssShared, Self::Swap];

    /// Counters that add up to the resident set size.
    pub const RSS: &[Self] = &[Self::RssAnonymous, Self::RssFile, Self::RssShared];

    /// Returns the name in JSON and in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live_bytes",
            Self::Allocated => "alloc_bytes",
            Self::RssAnonymous => "rss_anon_bytes",
            Self::RssFile => "rss_file_bytes",
            Self::RssShared => "rss_shmem_bytes",
            Self::Swap => "swap_bytes",
        }
    }

    /// Returns the counter with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|counter| counter.name() == name)
    }

    /// Returns the title in pictures.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Allocated => "allocated",
            Self::RssAnonymous => "RSS, anonymous",
            Self::RssFile => "RSS, files",
            Self::RssShared => "RSS, shared memory",
            Self::Swap => "swap",
        }
    }
}
