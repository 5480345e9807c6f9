//! Threads of one image that have ended.

use rustc_hash::FxHashSet;

use super::Image;
use crate::ledger::budget::Budget;
use crate::model::{Part, Tick, Tid};

impl Image {
    /// Records the end of a thread.
    pub(in crate::ledger) fn end_thread(&mut self, tid: Tid, tick: Tick) {
        self.tentative_frees.forget(tid);
        self.accounts.end_thread(tid, tick);
    }

    /// Merges the accounts of threads that have ended, except the last ones, into one account, and removes stacks of ended
    /// threads without live blocks. Returns the threads, and the parts whose accounts are removed.
    pub(in crate::ledger) fn merge_ended_threads(&mut self, budget: &mut Budget) -> (Vec<Tid>, Vec<Part>) {
        let ended = self.accounts.take_ended_threads(self.totals.len(), budget);
        if ended.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let pinned: FxHashSet<u32> = self.tentative_frees.stacks().collect();
        let removed = self.totals.end_threads(|tid| ended.contains_key(&tid), |index| pinned.contains(&index));
        budget.totals.release(removed);
        let merged = self.accounts.merge_threads(&ended, budget);
        (ended.into_keys().collect(), merged)
    }
}
