//! Configuration of a measurement of working sets: resolved, without conflicts.

use std::time::Duration;

use memtrace_model::WorkingSetMethod;

use crate::run_kit::config::Output;
use crate::targets::select::Target;

/// Configuration of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkingSetConfig {
    /// Running processes, or rules that processes match.
    pub(crate) target: Target,
    /// Method; `None` selects the default method.
    pub(crate) method: Option<WorkingSetMethod>,
    /// True to estimate the memory limit that the processes need.
    pub(crate) fit: bool,
    /// True to freeze each process while memtrace clears and reads its references.
    pub(crate) pause: bool,
    pub(crate) mode: WorkingSetMode,
    /// Duration of the measurement; `None` to measure until the end of the schedule, or until a signal.
    pub(crate) duration: Option<Duration>,
    pub(crate) outputs: Vec<Output>,
}

/// Schedule of clearing and reading the references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkingSetMode {
    /// Clear, wait and read once.
    Once { wait: Duration },
    /// Clear, wait and read, from the start of each interval on.
    Repeated { wait: Duration, every: Duration },
    /// Clear once, and read at each interval.
    Cumulative { every: Duration },
    /// Clear once, and read after durations that double.
    Profile { first: Duration, steps: u32 },
}

impl WorkingSetMode {
    /// Returns the time from clearing to a reading. `reading`: number of readings since the clearing. Returns `None` if
    /// the references are cleared before the next reading.
    pub(super) fn wait(self, reading: u32) -> Option<Duration> {
        match self {
            Self::Once { wait } | Self::Repeated { wait, .. } => (reading == 0).then_some(wait),
            Self::Cumulative { every } => Some(every.saturating_mul(reading.saturating_add(1))),
            Self::Profile { first, steps } => {
                let factor = 1_u32.checked_shl(reading).unwrap_or(u32::MAX);
                (reading < steps).then(|| first.saturating_mul(factor))
            }
        }
    }

    /// Returns the time of the next clearing after `now`; `None` if the references are cleared only once. Both times
    /// count from the first clearing. Missed times are left out.
    pub(super) fn next(self, now: Duration) -> Option<Duration> {
        let Self::Repeated { every, .. } = self else { return None };
        let periods = now.as_nanos().checked_div(every.as_nanos())?;
        Some(every.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX).saturating_add(1)))
    }

    /// Returns true if several readings follow one clearing of the references.
    pub(super) const fn is_cumulative(self) -> bool {
        matches!(self, Self::Cumulative { .. } | Self::Profile { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_a_profile_double() {
        let second = Duration::from_secs(1);
        let waits = |mode: WorkingSetMode| (0..4).map_while(|reading| mode.wait(reading)).collect::<Vec<_>>();
        assert_eq!(waits(WorkingSetMode::Once { wait: second }), [second]);
        assert_eq!(waits(WorkingSetMode::Repeated { wait: second, every: 3 * second }), [second]);
        assert_eq!(waits(WorkingSetMode::Cumulative { every: second }), [second, 2 * second, 3 * second, 4 * second]);
        assert_eq!(waits(WorkingSetMode::Profile { first: second, steps: 3 }), [second, 2 * second, 4 * second]);
        let longest = WorkingSetMode::Profile { first: second, steps: 100 }.wait(60);
        assert_eq!(longest, Some(second * u32::MAX));
    }
    #[test]
    fn missed_clearings_are_left_out() {
        let milliseconds = Duration::from_millis;
        let mode = WorkingSetMode::Repeated { wait: milliseconds(100), every: milliseconds(500) };
        let next = |now| mode.next(milliseconds(now));
        assert_eq!([0, 499, 500, 1700].map(next), [500, 500, 1000, 2000].map(|time| Some(milliseconds(time))));
        assert_eq!(WorkingSetMode::Cumulative { every: milliseconds(500) }.next(Duration::ZERO), None);
    }
}
