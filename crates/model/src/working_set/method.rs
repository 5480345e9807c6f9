//! Methods of measuring working sets.

/// Method that finds the touched pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkingSetMethod {
    /// The accessed bits of the page tables, summed by mapping: `clear_refs` and `smaps`.
    #[default]
    Referenced,
    /// The idle flags of the pages: `/sys/kernel/mm/page_idle/bitmap`.
    Idle,
    /// The soft-dirty bits of the page tables: writes only.
    Written,
    /// DAMON: the kernel samples the accessed bits of pages. The result is an estimate.
    Damon,
    /// Page faults: a lower bound.
    Faults,
}

impl WorkingSetMethod {
    /// All methods, ordered as in the help.
    pub const ALL: &[Self] = &[Self::Referenced, Self::Idle, Self::Written, Self::Damon, Self::Faults];

    /// Returns the name on the command line and in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Referenced => "referenced",
            Self::Idle => "idle",
            Self::Written => "written",
            Self::Damon => "damon",
            Self::Faults => "faults",
        }
    }

    /// Returns the past participle for counted pages in messages: `touched`.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Referenced | Self::Idle | Self::Damon | Self::Faults => "touched",
            Self::Written => "written",
        }
    }

    /// Returns the predicate for counted pages in messages: `were touched`.
    #[must_use]
    pub fn predicate(self) -> String {
        if self == Self::Faults { String::from("had a page fault") } else { format!("were {}", self.verb()) }
    }

    /// Returns the description of the effects on the process and on the machine, for the user.
    #[must_use]
    pub const fn side_effects(self) -> &'static str {
        match self {
            Self::Referenced => {
                "clears the accessed bits and the soft-dirty bits of all pages, which can mislead reclaim and other users of \
                 these bits, and flushes the TLBs; page faults and mmap wait while it clears; on kernels with \
                 CONFIG_MEM_SOFT_DIRTY, the next write to each page causes a minor fault"
            }
            Self::Idle => {
                "clears the accessed bits of all pages in all processes that map them, and marks them as idle, which can \
                 mislead other users of the idle flags; clears the soft-dirty bits and flushes the TLBs; page faults and \
                 mmap wait while it clears; on kernels with CONFIG_MEM_SOFT_DIRTY, the next write to each page causes \
                 a minor fault"
            }
            Self::Written => {
                "clears the soft-dirty bits of all pages, which misleads other users of these bits, and flushes the TLBs; \
                 the next write to each page causes a minor fault; page faults and mmap wait while it clears"
            }
            Self::Damon => {
                "samples the accessed bits by a thread of the kernel for each process, and clears those of the sampled pages; \
                 the result is an estimate"
            }
            Self::Faults => {
                "traces page faults, which adds about a microsecond to each; clears nothing, so pages that were mapped \
                 before are missing: the result is a lower bound"
            }
        }
    }
}
