//! Triggers: conditions on monitored values. Pure.
//!
//! A [`Condition`] compares a field of each process, thread, cgroup or of the machine with a limit. [`Triggers`] reads the
//! intervals of the monitor and returns a [`Firing`] when a condition becomes true. [`TraceBudget`] limits the traces that
//! firings start.

mod budget;
mod condition;
mod error;
mod field;
mod firing;
mod observed;
mod parse;
mod state;
mod subject;
#[cfg(test)]
mod tests;
mod watch;
mod window;

use memtrace_model::ThreadsInterval;

pub use budget::{TraceBudget, TraceRefusal};
pub use condition::{Comparison, Condition, Period};
pub use error::ConditionError;
pub use field::{Field, Unit};
pub use firing::Firing;
pub use observed::CgroupObservation;
pub use subject::Subject;

use observed::subjects;
use state::Room;
use watch::Watch;

/// Maximum number of subjects with state, over all conditions.
const MAX_SUBJECTS: usize = 1 << 14;

/// Observations that could not be evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerLosses {
    /// Observations of processes, threads and cgroups beyond the limit.
    pub subjects_full: u64,
    /// Observations of values that could not be read: the kernel lacks them, or memtrace does not trace the allocator.
    pub values_unknown: u64,
}

/// Conditions, with the state of each condition and subject.
#[derive(Debug)]
pub struct Triggers {
    watches: Vec<Watch>,
    room: Room,
}

impl Triggers {
    /// Creates triggers for conditions.
    #[must_use]
    pub fn new(conditions: Vec<Condition>) -> Self {
        Self::with_limit(conditions, MAX_SUBJECTS)
    }

    fn with_limit(conditions: Vec<Condition>, limit: usize) -> Self {
        Self { watches: conditions.into_iter().map(Watch::new).collect(), room: Room::new(limit) }
    }

    /// Evaluates an interval. Returns the conditions that became true, in their order, with their subjects.
    ///
    /// A condition fires when it becomes true for a subject. It can fire again for this subject after it was false for a
    /// minute. Threads without rows are not evaluated. The usage of a thread in the interval of its end is not evaluated.
    pub fn observe(&mut self, interval: &ThreadsInterval, cgroups: &[CgroupObservation]) -> Vec<Firing> {
        let mut firings = Vec::new();
        for watch in &mut self.watches {
            let subjects = subjects(watch.subject(), interval, cgroups);
            firings.extend(watch.observe(&interval.span, &subjects, &mut self.room));
        }
        firings
    }

    /// Returns the numbers of observations that could not be evaluated so far.
    #[must_use]
    pub fn losses(&self) -> TriggerLosses {
        TriggerLosses {
            subjects_full: self.room.refused(),
            values_unknown: self.watches.iter().map(Watch::values_unknown).sum(),
        }
    }
}
