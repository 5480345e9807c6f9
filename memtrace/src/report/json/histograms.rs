//! Fields of histograms.

use serde::Serialize;

use crate::model::{BlockHistograms, BlockQuantity};

/// Histograms: pairs of a binary logarithm and a number of blocks.
#[derive(Serialize)]
pub(super) struct HistogramFields {
    size_log2: Vec<(u32, u64)>,
    lifetime_log2: Vec<(u32, u64)>,
    age_log2: Vec<(u32, u64)>,
}

impl HistogramFields {
    /// Returns the fields; `None` if nothing was counted.
    pub(super) fn of(histograms: &BlockHistograms) -> Option<Self> {
        let counts = |quantity| histograms.of(quantity).map(|(log2, count)| (log2.number(), count)).collect::<Vec<_>>();
        (!histograms.is_empty()).then(|| Self {
            size_log2: counts(BlockQuantity::Size),
            lifetime_log2: counts(BlockQuantity::Lifetime),
            age_log2: counts(BlockQuantity::Age),
        })
    }
}
