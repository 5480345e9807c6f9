//! What a picture or a ranking is drawn by.

use crate::model::{EventClass, StackProfile, Usage};

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

    /// Whether events of `class` have it.
    #[must_use]
    pub const fn is_of(self, class: EventClass) -> bool {
        let of_stalls = matches!(self, Self::StallTime | Self::StallCount);
        match class {
            EventClass::Heap => !of_stalls,
            EventClass::Map | EventClass::Fault => !of_stalls && !matches!(self, Self::PeakBytes),
            EventClass::Reclaim => of_stalls,
        }
    }

    /// This metric, or where events of `class` do not have it, the one that is drawn of them by default.
    #[must_use]
    pub const fn fitting(self, class: EventClass) -> Self {
        match class {
            _ if self.is_of(class) => self,
            EventClass::Heap | EventClass::Map | EventClass::Fault => Self::LiveBytes,
            EventClass::Reclaim => Self::StallTime,
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
            Self::StallTime => Some(usage.stalls.time.0),
            Self::StallCount => Some(usage.stalls.count),
        }
    }
}
