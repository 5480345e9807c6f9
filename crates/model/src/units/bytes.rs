//! Sizes in bytes.

use std::fmt;

use crate::format;

/// Size of a page that is not a huge page.
pub const PAGE: Bytes = Bytes(1 << memtrace_common::wire::PAGE_SHIFT);

/// Size of a huge page.
pub const HUGE_PAGE: Bytes = Bytes(1 << memtrace_common::wire::HUGE_PAGE_SHIFT);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Returns the size for a table: `17B`, `1.50K`, `3.25G`.
    pub fn compact(self) -> String {
        format::compact_bytes(self.0 as f64)
    }
}

impl fmt::Display for Bytes {
    /// Writes the number with a binary unit and, from KiB on, two decimals: `17 B`, `1.50 KiB`, `3.25 GiB`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format::bytes(self.0))
    }
}
