//! Limits of the traces that triggers start.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of traces that start within an hour.
const MAX_PER_HOUR: usize = 10;

const HOUR: Duration = Duration::from_secs(3600);

/// Reason why a trace does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum TraceRefusal {
    /// Another trace runs.
    Running,
    /// Ten traces have started within an hour.
    TooMany,
}

impl TraceRefusal {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::Running, Self::TooMany];

    /// Returns the explanation for the user.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Running => "the trace of another trigger runs",
            Self::TooMany => "triggers have started ten traces within an hour",
        }
    }
}

/// Limits of the traces that triggers start: one at a time, and ten within an hour.
#[derive(Debug, Default)]
pub struct TraceBudget {
    is_running: bool,
    /// Times of the starts within the last hour.
    starts: VecDeque<Duration>,
    refused: [u64; TraceRefusal::ALL.len()],
}

impl TraceBudget {
    /// Records the start of a trace. `at`: time since the start of the monitor.
    ///
    /// # Errors
    ///
    /// Fails if the trace must not start. The refusal is counted.
    pub fn start(&mut self, at: Duration) -> Result<(), TraceRefusal> {
        while self.starts.front().is_some_and(|start| at.saturating_sub(*start) >= HOUR) {
            self.starts.pop_front();
        }
        let refusal = if self.is_running {
            TraceRefusal::Running
        } else if self.starts.len() >= MAX_PER_HOUR {
            TraceRefusal::TooMany
        } else {
            self.is_running = true;
            self.starts.push_back(at);
            return Ok(());
        };
        self.refused[refusal as usize] += 1;
        Err(refusal)
    }

    /// Records the end of the trace.
    pub const fn finish(&mut self) {
        self.is_running = false;
    }

    /// Returns the number of traces that were refused for a reason.
    #[must_use]
    pub const fn refused(&self, reason: TraceRefusal) -> u64 {
        self.refused[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[test]
    fn one_trace_runs_at_a_time() {
        let mut budget = TraceBudget::default();
        assert_eq!(budget.start(minutes(0)), Ok(()));
        assert_eq!(budget.start(minutes(500)), Err(TraceRefusal::Running));
        budget.finish();
        assert_eq!(budget.start(minutes(501)), Ok(()));
        assert_eq!(TraceRefusal::ALL.map(|reason| budget.refused(reason)), [1, 0]);
    }

    #[test]
    fn ten_traces_start_within_an_hour() {
        let mut budget = TraceBudget::default();
        let mut start = |minute| {
            let result = budget.start(minutes(minute));
            budget.finish();
            result
        };
        for minute in 0..10 {
            assert_eq!(start(minute), Ok(()));
        }
        assert_eq!([10, 59].map(&mut start), [Err(TraceRefusal::TooMany); 2]);
        assert_eq!(start(60), Ok(()), "the first one was an hour ago");
        assert_eq!(start(60), Err(TraceRefusal::TooMany));
        assert_eq!(start(61), Ok(()));
        assert_eq!(TraceRefusal::ALL.map(|reason| budget.refused(reason)), [0, 3]);
        assert!(budget.starts.len() <= MAX_PER_HOUR);
    }

    #[test]
    fn reasons_are_listed_in_order() {
        assert!(TraceRefusal::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }
}
