//! What a picture or a ranking is drawn by.

use super::Usage;

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
    /// Time that was waited for memory.
    StallTime,
    /// How often memory was waited for.
    StallCount,
}

/// What a metric's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Numbers of blocks, or of whatever is counted.
    Count,
    /// Nanoseconds.
    Time,
}

impl Metric {
    /// Every metric, in the order in which help lists them.
    pub const ALL: &[Self] = &[
        Self::LiveBytes,
        Self::LiveCount,
        Self::AllocBytes,
        Self::AllocCount,
        Self::PeakBytes,
        Self::StallTime,
        Self::StallCount,
    ];

    /// The metric's name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LiveBytes => "live-bytes",
            Self::LiveCount => "live-count",
            Self::AllocBytes => "alloc-bytes",
            Self::AllocCount => "alloc-count",
            Self::PeakBytes => "peak-bytes",
            Self::StallTime => "stall-time",
            Self::StallCount => "stall-count",
        }
    }

    /// What the metric's values are.
    #[must_use]
    pub const fn measure(self) -> Measure {
        match self {
            Self::LiveBytes | Self::AllocBytes | Self::PeakBytes => Measure::Bytes,
            Self::LiveCount | Self::AllocCount | Self::StallCount => Measure::Count,
            Self::StallTime => Measure::Time,
        }
    }

    /// Whether the metric's values are bytes.
    #[must_use]
    pub const fn counts_bytes(self) -> bool {
        matches!(self.measure(), Measure::Bytes)
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
            Self::StallTime => Some(usage.stalls.time.0),
            Self::StallCount => Some(usage.stalls.count),
        }
    }
}
