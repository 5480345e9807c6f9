//! Limits of the heap profiles of a run.

use memtrace_model::Pid;

/// Maximum part of the free stacks that a reading may add at first: one in this number. So a few hostile programs do not take the
/// memory of all readings in progress.
const PART: usize = 4;

/// Limits of the heap profiles of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::trace) struct ProfileLimits {
    /// Maximum number of programs.
    pub(in crate::trace) programs: usize,
    /// Maximum number of stacks of all profiles.
    pub(in crate::trace) stacks: usize,
    /// Number of shards, and the maximum number of stacks of the profiles in each.
    pub(in crate::trace) shards: usize,
    pub(in crate::trace) stacks_of_shard: usize,
}

/// Stacks of all profiles, within the limits. The shard of a process has all its stacks.
#[derive(Debug)]
pub(super) struct StackBudget {
    limits: ProfileLimits,
    /// Number of stacks in each shard, including the stacks that readings in progress may add.
    shards: Vec<usize>,
    /// Number of stacks that readings in progress may add.
    granted: usize,
}

impl StackBudget {
    pub(super) fn new(limits: ProfileLimits) -> Self {
        Self { limits, shards: vec![0; limits.shards.max(1)], granted: 0 }
    }

    /// Returns true if one more program than `programs` can be read.
    pub(super) const fn has_room(&self, programs: usize) -> bool {
        programs < self.limits.programs
    }

    /// Returns true if readings in progress may add stacks.
    pub(super) const fn has_grants(&self) -> bool {
        self.granted > 0
    }

    /// Returns the number of stacks that a reading of the process `pid` may add. `is_whole`: true if the reading may
    /// add all free stacks.
    pub(super) fn grant(&mut self, pid: Pid, is_whole: bool) -> usize {
        let free = self.limits.stacks.saturating_sub(self.shards.iter().sum());
        let Some(shard) = shard_of(&mut self.shards, pid) else { return 0 };
        let free = free.min(self.limits.stacks_of_shard.saturating_sub(*shard));
        let granted = if is_whole { free } else { free / PART };
        *shard += granted;
        self.granted += granted;
        granted
    }

    /// Ends a reading that was permitted to add `granted` stacks, and has added `new` stacks.
    pub(super) fn settle(&mut self, pid: Pid, granted: usize, new: usize) {
        self.granted = self.granted.saturating_sub(granted);
        if let Some(shard) = shard_of(&mut self.shards, pid) {
            *shard = (*shard + new).saturating_sub(granted);
        }
    }

    /// Removes a number of stacks of a process.
    pub(super) fn release(&mut self, pid: Pid, stacks: usize) {
        if let Some(shard) = shard_of(&mut self.shards, pid) {
            *shard = shard.saturating_sub(stacks);
        }
    }
}

/// Returns the shard of a process ([`memtrace_history::pipeline::Shards::apply`]).
fn shard_of(shards: &mut [usize], pid: Pid) -> Option<&mut usize> {
    let index = pid.0 as usize % shards.len().max(1);
    shards.get_mut(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ProfileLimits = ProfileLimits { programs: 2, stacks: 1000, shards: 2, stacks_of_shard: 800 };

    #[test]
    fn readings_in_progress_share_the_free_stacks() {
        let mut budget = StackBudget::new(LIMITS);
        assert_eq!([1, 2, 4].map(|pid| budget.grant(Pid(pid), false)), [200, 200, 150]);
        assert!(budget.has_grants());
        // Only the second one has new stacks.
        budget.settle(Pid(1), 200, 0);
        budget.settle(Pid(2), 200, 120);
        budget.settle(Pid(4), 150, 0);
        assert!(!budget.has_grants());
        assert_eq!([2, 1].map(|pid| budget.grant(Pid(pid), true)), [680, 200]);
        assert_eq!(budget.grant(Pid(3), true), 0);
    }

    #[test]
    fn ended_processes_leave_their_stacks_to_others() {
        let mut budget = StackBudget::new(LIMITS);
        let granted = budget.grant(Pid(1), true);
        budget.settle(Pid(1), granted, granted);
        assert_eq!((granted, budget.grant(Pid(3), true)), (800, 0));
        budget.release(Pid(1), 300);
        assert_eq!(budget.grant(Pid(3), true), 300);
    }

    #[test]
    fn programs_are_limited() {
        let budget = StackBudget::new(LIMITS);
        assert_eq!([0, 1, 2].map(|programs| budget.has_room(programs)), [true, true, false]);
    }
}
