//! Metrics: the numbers by which reports are drawn and sorted.

use super::Usage;

/// Metric of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes allocated and not freed, by processes that run.
    #[default]
    LiveBytes,
    /// Blocks allocated and not freed, by processes that run.
    LiveCount,
    /// Bytes that processes held when they ended.
    ExitBytes,
    /// Blocks that processes held when they ended.
    ExitCount,
    /// Bytes allocated, freed or not.
    AllocBytes,
    /// Blocks allocated, freed or not.
    AllocCount,
    /// Blocks freed by the allocating thread before its next allocation.
    Temporary,
    /// Bytes live when the live bytes of the process were highest.
    PeakBytes,
    /// Live bytes on pages that were touched within a time.
    HotBytes,
    /// Live bytes on resident pages that were not touched within a time.
    ColdBytes,
    /// Total time of stalls.
    StallTime,
    /// Number of stalls.
    StallCount,
    /// Growth of the live bytes between two moments of a recording.
    NetGrowth,
    /// Live bytes that were allocated between two marks of a recording.
    Growth,
}

/// Dimension of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Number of blocks, pages or stalls.
    Count,
    /// Nanoseconds.
    Time,
}

impl Metric {
    /// Every metric, in the order of the help.
    pub const ALL: &[Self] = &[
        Self::LiveBytes,
        Self::LiveCount,
        Self::ExitBytes,
        Self::ExitCount,
        Self::AllocBytes,
        Self::AllocCount,
        Self::Temporary,
        Self::PeakBytes,
        Self::HotBytes,
        Self::ColdBytes,
        Self::StallTime,
        Self::StallCount,
        Self::NetGrowth,
        Self::Growth,
    ];

    /// Name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LiveBytes => "live-bytes",
            Self::LiveCount => "live-count",
            Self::ExitBytes => "exit-bytes",
            Self::ExitCount => "exit-count",
            Self::AllocBytes => "alloc-bytes",
            Self::AllocCount => "alloc-count",
            Self::Temporary => "temporary",
            Self::PeakBytes => "peak-bytes",
            Self::HotBytes => "hot-bytes",
            Self::ColdBytes => "cold-bytes",
            Self::StallTime => "stall-time",
            Self::StallCount => "stall-count",
            Self::NetGrowth => "net-growth",
            Self::Growth => "growth",
        }
    }

    /// Dimension of the values.
    #[must_use]
    pub const fn measure(self) -> Measure {
        match self {
            Self::LiveBytes
            | Self::ExitBytes
            | Self::AllocBytes
            | Self::PeakBytes
            | Self::HotBytes
            | Self::ColdBytes
            | Self::NetGrowth
            | Self::Growth => Measure::Bytes,
            Self::LiveCount | Self::ExitCount | Self::AllocCount | Self::Temporary | Self::StallCount => Measure::Count,
            Self::StallTime => Measure::Time,
        }
    }

    /// Returns true if it needs a measurement of touched pages.
    #[must_use]
    pub const fn is_of_touches(self) -> bool {
        matches!(self, Self::HotBytes | Self::ColdBytes)
    }

    /// Returns true if the values are bytes.
    #[must_use]
    pub const fn counts_bytes(self) -> bool {
        matches!(self.measure(), Measure::Bytes)
    }

    /// Returns the value for `usage`; `None` for [`Metric::PeakBytes`], which a usage does not contain. A decrease has the
    /// [`Metric::NetGrowth`] 0. For [`Metric::Growth`], `usage` counts only blocks that were allocated between the marks.
    #[must_use]
    pub const fn of_usage(self, usage: &Usage) -> Option<u64> {
        match self {
            Self::LiveBytes | Self::Growth => Some(usage.live.bytes.0),
            Self::LiveCount => Some(usage.live.count),
            Self::ExitBytes => Some(usage.exit.bytes.0),
            Self::ExitCount => Some(usage.exit.count),
            Self::AllocBytes => Some(usage.alloc.bytes.0),
            Self::AllocCount => Some(usage.alloc.count),
            Self::Temporary => Some(usage.temporary.count),
            Self::PeakBytes => None,
            Self::HotBytes => Some(usage.hot.0),
            Self::ColdBytes => Some(usage.cold.0),
            Self::StallTime => Some(usage.stalls.time.0),
            Self::StallCount => Some(usage.stalls.count),
            Self::NetGrowth => Some(if usage.live.bytes.0.cast_signed() > 0 { usage.live.bytes.0 } else { 0 }),
        }
    }
}
