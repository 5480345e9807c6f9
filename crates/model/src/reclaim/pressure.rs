//! Pressure stall information (PSI) for memory.

use std::time::Duration;

/// Memory pressure (`Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task stalled.
    pub some: Stalled,
    /// All non-idle tasks stalled; `None` if the kernel does not report it.
    pub full: Option<Stalled>,
}

/// Share of time with stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalled {
    /// In the last ten seconds, in percent.
    pub ten_seconds: f64,
    /// In the last minute, in percent.
    pub minute: f64,
    /// In the last five minutes, in percent.
    pub five_minutes: f64,
    /// Total time with stalls.
    pub total: Duration,
}

impl Stalled {
    /// Returns the total time with stalls in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        u64::try_from(self.total.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Time with memory pressure during the trace, for reclaim and for reading evicted pages again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureTime {
    /// At least one task stalled.
    pub some: Duration,
    /// All non-idle tasks stalled; `None` if the kernel does not report it.
    pub full: Option<Duration>,
}

impl PressureTime {
    /// Returns the time from `earlier` to `now`.
    #[must_use]
    pub fn between(earlier: &Pressure, now: &Pressure) -> Self {
        let full = now.full.zip(earlier.full);
        Self {
            some: now.some.total.saturating_sub(earlier.some.total),
            full: full.map(|(now, earlier)| now.total.saturating_sub(earlier.total)),
        }
    }
}
