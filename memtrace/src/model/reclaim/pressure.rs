//! How long tasks waited for memory.

use std::time::Duration;

/// How long tasks waited for memory (`Documentation/accounting/psi.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stalled,
    /// All tasks that had work waited; `None` where the kernel does not say.
    pub full: Option<Stalled>,
}

/// The share of time that was waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalled {
    /// Of the last ten seconds, in percent.
    pub ten_seconds: f64,
    /// Of the last minute, in percent.
    pub minute: f64,
    /// Of the last five minutes, in percent.
    pub five_minutes: f64,
    /// All that was ever waited.
    pub total: Duration,
}

/// For how long tasks waited for memory while tracing, as the kernel's pressure information has it: for the time that it
/// takes to look for pages, and to bring back what was taken out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PressureTime {
    /// At least one task waited.
    pub some: Duration,
    /// All tasks that had work waited; `None` where the kernel does not say.
    pub full: Option<Duration>,
}

impl PressureTime {
    /// From `earlier` to `now`.
    #[must_use]
    pub fn between(earlier: &Pressure, now: &Pressure) -> Self {
        let full = now.full.zip(earlier.full);
        Self {
            some: now.some.total.saturating_sub(earlier.some.total),
            full: full.map(|(now, earlier)| now.total.saturating_sub(earlier.total)),
        }
    }
}
