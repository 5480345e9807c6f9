//! Kinds of reclaim.

/// Kind of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimKind {
    /// Direct reclaim: a task that finds too few free pages reclaims pages itself.
    Direct,
    /// Memcg reclaim: a task in a control group at its limit reclaims pages of the group.
    Memcg,
    /// Compaction: pages are moved to create contiguous free memory.
    Compaction,
    /// kswapd: the kernel thread reclaims pages in the background.
    Kswapd,
    /// Throttling: a task sleeps until other tasks have freed pages.
    Throttled,
    /// Other reclaim, such as `madvise(MADV_PAGEOUT)`.
    Other,
}

impl ReclaimKind {
    /// Every kind, ordered as in reports.
    pub const ALL: &[Self] = &[Self::Direct, Self::Memcg, Self::Compaction, Self::Kswapd, Self::Throttled, Self::Other];

    /// Returns the name in every report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Memcg => "memcg",
            Self::Compaction => "compaction",
            Self::Kswapd => "kswapd",
            Self::Throttled => "throttled",
            Self::Other => "other",
        }
    }

    /// Returns the description for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Direct => "direct reclaim",
            Self::Memcg => "memcg reclaim",
            Self::Compaction => "compaction",
            Self::Kswapd => "kswapd",
            Self::Throttled => "throttled",
            Self::Other => "others",
        }
    }
}
