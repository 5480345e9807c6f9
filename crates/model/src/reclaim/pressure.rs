//! Pressure stall information (PSI) for memory.

use std::time::Duration;

/// Memory pressure (`Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Time with at least one stalled task.
    pub some: Stalled,
    /// Time with all non-idle tasks stalled; `None` if the kernel does not report it.
    pub full: Option<Stalled>,
}

/// Time with stalls, as averages and as a total.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalled {
    /// Share of the last ten seconds with stalls, in percent.
    pub ten_seconds: f64,
    /// Share of the last minute with stalls, in percent.
    pub minute: f64,
    /// Share of the last five minutes with stalls, in percent.
    pub five_minutes: f64,
    /// Total time with stalls since boot.
    pub total: Duration,
}

impl Stalled {
    /// Returns the total time with stalls in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        u64::try_from(self.total.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Time with memory pressure during the trace: tasks reclaimed pages, or read evicted pages again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureTime {
    /// Time with at least one stalled task.
    pub some: Duration,
    /// Time with all non-idle tasks stalled; `None` if the kernel does not report it.
    pub full: Option<Duration>,
}

impl PressureTime {
    /// Returns the time with pressure between the readings `earlier` and `now`.
    #[must_use]
    pub fn between(earlier: &Pressure, now: &Pressure) -> Self {
        let full = now.full.zip(earlier.full);
        Self {
            some: now.some.total.saturating_sub(earlier.some.total),
            full: full.map(|(now, earlier)| now.total.saturating_sub(earlier.total)),
        }
    }
}
