//! Histograms of blocks.

use serde::Deserialize;

/// Histograms of the blocks of a stack or of a trace: binary logarithms with numbers of blocks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Histograms {
    pub size_log2: Vec<(u32, u64)>,
    pub lifetime_log2: Vec<(u32, u64)>,
    pub age_log2: Vec<(u32, u64)>,
}

impl Histograms {
    /// Returns the numbers of allocated, of freed, and of held blocks.
    #[must_use]
    pub fn totals(&self) -> [u64; 3] {
        [&self.size_log2, &self.lifetime_log2, &self.age_log2].map(|counts| counts.iter().map(|(_, count)| count).sum())
    }
}
