//! What a picture or a ranking is drawn by.

use super::{StackProfile, Usage};

/// Which number of a stack is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes allocated and not yet freed.
    #[default]
    LiveBytes,
    /// Blocks allocated and not yet freed.
    LiveCount,
    /// Bytes allocated, freed or not.
    AllocBytes,
    /// Blocks allocated, freed or not.
    AllocCount,
    /// Bytes live at the moment at which the process' live bytes were highest.
    PeakBytes,
}

impl Metric {
    /// Every metric, in the order in which help lists them.
    pub const ALL: &[Self] = &[Self::LiveBytes, Self::LiveCount, Self::AllocBytes, Self::AllocCount, Self::PeakBytes];

    /// The metric's name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LiveBytes => "live-bytes",
            Self::LiveCount => "live-count",
            Self::AllocBytes => "alloc-bytes",
            Self::AllocCount => "alloc-count",
            Self::PeakBytes => "peak-bytes",
        }
    }

    /// Whether the metric's values are bytes; else they are numbers of blocks, or of whatever is counted.
    #[must_use]
    pub const fn counts_bytes(self) -> bool {
        match self {
            Self::LiveBytes | Self::AllocBytes | Self::PeakBytes => true,
            Self::LiveCount | Self::AllocCount => false,
        }
    }

    /// The metric's value for one stack; 0 for [`Metric::PeakBytes`] where no peak was kept.
    #[must_use]
    pub fn of(self, stack: &StackProfile) -> u64 {
        match self {
            Self::PeakBytes => stack.at_peak.map_or(0, |bytes| bytes.0),
            other => other.of_usage(&stack.usage).unwrap_or(0),
        }
    }

    /// The metric's value for a usage; `None` for [`Metric::PeakBytes`], which a usage does not know.
    #[must_use]
    pub const fn of_usage(self, usage: &Usage) -> Option<u64> {
        match self {
            Self::LiveBytes => Some(usage.live.bytes.0),
            Self::LiveCount => Some(usage.live.count),
            Self::AllocBytes => Some(usage.alloc.bytes.0),
            Self::AllocCount => Some(usage.alloc.count),
            Self::PeakBytes => None,
        }
    }
}
