//! Threads of one image that have ended.

use rustc_hash::FxHashSet;

use super::Image;
use crate::ledger::budget::Budget;
use crate::model::Partition;

impl Image {
    /// Merges the accounts of threads that have ended, except the last ones, into one account, and removes their stacks without
    /// live blocks. Returns the parts whose accounts are removed.
    pub(in crate::ledger) fn merge_ended_threads(&mut self, budget: &mut Budget) -> Vec<Partition> {
        let ended = self.accounts.take_ended_threads(budget);
        if ended.is_empty() {
            return Vec::new();
        }
        let pinned: FxHashSet<u32> = self.tentative_frees.stacks().collect();
        let removed = self.totals.end_threads(|tid| ended.contains_key(&tid), |index| pinned.contains(&index));
        budget.totals.release(removed);
        self.accounts.merge_threads(&ended, budget)
    }
}
