//! Sizes with which a working set is compared.

use crate::Bytes;

/// Cache of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Its level: 2 or more.
    pub level: u8,
    /// Its size.
    pub size: Bytes,
}

/// Sizes with which a working set is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedSizes {
    /// There is a swap device.
    pub has_swap: bool,
    /// Caches of a processor, by level.
    pub caches: Vec<CacheSize>,
    /// Memory that the pages of the largest TLB for data cover, in small pages; `None` if it is not known.
    pub tlb_reach: Option<Bytes>,
    /// Limit of the memory of the measured process, by its cgroup; `None` for none, or for several processes.
    pub memory_limit: Option<Bytes>,
}
