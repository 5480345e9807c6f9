//! Kinds of reclaim.

/// What is done to find memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReclaimKind {
    /// A task whose allocation finds too few free pages looks for pages that can go.
    Direct,
    /// A task whose control group is at its limit looks for pages of the group that can go.
    Memcg,
    /// Pages are moved so that free ones lie side by side.
    Compaction,
    /// The kernel's own thread looks for pages that can go before anybody has to.
    Kswapd,
    /// A task sleeps, so that others come to free pages.
    Throttled,
    /// Somebody else looks for pages that can go, as on `madvise(MADV_PAGEOUT)`.
    Other,
}

impl ReclaimKind {
    /// All of it, in the order in which reports list it.
    pub const ALL: &[Self] = &[Self::Direct, Self::Memcg, Self::Compaction, Self::Kswapd, Self::Throttled, Self::Other];

    /// Its name in every report.
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

    /// What it is, in words.
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
