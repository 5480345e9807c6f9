//! New activity in an interval.

use std::collections::BTreeMap;

use crate::model::{AbsAddr, Pid, StackId};

use super::{ActiveThread, ActivityEvent, LockSums, Slice, SliceKind, SliceSums};

/// Activity since the last changes. Threads, locks, names and stacks have numbers that stay the same for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityChanges {
    /// New names, by number.
    pub names: Vec<(u32, String)>,
    /// Threads that are new, or whose row has changed, by number.
    pub threads: BTreeMap<u32, ActiveThread>,
    /// New locks, by number.
    pub locks: Vec<(u32, LockIdentity)>,
    /// New stacks of waits, by number, with the process.
    pub stacks: Vec<(u32, Pid, StackId)>,
    /// Slices that have ended, in the order of their ends for each thread.
    pub slices: Vec<Slice>,
    /// Events.
    pub events: Vec<ActivityEvent>,
    /// Increases of the totals of slices, by kind and number of the name; the longest one is a maximum.
    pub totals: BTreeMap<(SliceKind, u32), SliceSums>,
    /// Increases of the totals of locks, by number; maxima are maxima.
    pub lock_totals: BTreeMap<u32, LockSums>,
}

impl ActivityChanges {
    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds later changes.
    pub fn append(&mut self, later: Self) {
        let Self { names, threads, locks, stacks, slices, events, totals, lock_totals } = later;
        self.names.extend(names);
        self.threads.extend(threads);
        self.locks.extend(locks);
        self.stacks.extend(stacks);
        self.slices.extend(slices);
        self.events.extend(events);
        for (key, sums) in totals {
            *self.totals.entry(key).or_default() += sums;
        }
        for (lock, sums) in lock_totals {
            *self.lock_totals.entry(lock).or_default() += sums;
        }
    }
}

/// Identity of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockIdentity {
    /// Process.
    pub pid: Pid,
    /// Address of the lock, or of the futex.
    pub address: AbsAddr,
    /// Number of the name; `None` for a futex.
    pub name: Option<u32>,
}
