//! Thinning of samples. A patched process whose table of sampled blocks is full leaves out half of its samples, and the others
//! stand for twice as much ([`is_thinned`]).
//!
//! The ledger treats a block that is live at that moment as if it had been sampled with half of the probability: the
//! corrections apply to its live and its allocated amount alike. So the freed amount, their difference, does not change, and
//! each sum and its variance contain the same samples.

use std::collections::BTreeMap;

use memtrace_model::{Amount, MAX_THINNING, Tick, is_thinned};

use super::accounts::Accounts;
use super::address_table::Addressed as _;
use super::block::Block;
use super::budget::Budget;
use super::samples::LiveSample;
use super::stack_totals::ImageTotals;

/// Level of thinning that a process has reached, and the salt of its hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Thinning {
    pub(super) level: u8,
    salt: u64,
}

impl Thinning {
    /// Returns the thinning at a level that a process claims.
    pub(super) fn new(level: u8, salt: u64) -> Self {
        Self { level: level.min(MAX_THINNING), salt }
    }

    /// Returns the thinning of the same process at another level.
    pub(super) fn at(self, level: u8) -> Self {
        Self::new(level, self.salt)
    }

    /// Returns true if samples were left out.
    pub(super) const fn is_active(self) -> bool {
        self.level > 0
    }

    /// Returns the sample of a block at this level; `None` if the block is left out. `live`: sample at a lower level.
    pub(super) fn of_sample(self, block: &Block, live: &LiveSample) -> Option<LiveSample> {
        if is_thinned(block.address().0, self.salt, live.level, self.level) {
            return None;
        }
        let thinned = (live.level..self.level).fold(live.sample, |sample, _| sample.halved(block.size));
        Some(LiveSample::new(block, thinned, self.level))
    }
}

/// Corrections of several blocks at once. Only their sum counts for water marks, because the intermediate amounts mix
/// blocks of different levels.
#[derive(Debug, Default)]
pub(super) struct Corrections {
    live: Amount,
    /// Corrections by the index of the account.
    by_account: BTreeMap<u32, Amount>,
    /// Time of the latest of the blocks.
    tick: Tick,
}

impl Corrections {
    /// Adds the correction of a block, which can be negative. `account`: index of its account; `None` without accounts.
    pub(super) fn add(&mut self, block: &Block, change: Amount, account: Option<u32>) {
        self.live += change;
        if let Some(account) = account {
            *self.by_account.entry(account).or_default() += change;
        }
        self.tick = self.tick.max(block.tick);
    }

    /// Applies the sums. The totals of the stacks must have the corrections already.
    pub(super) fn apply(self, totals: &mut ImageTotals, accounts: &mut Accounts, budget: &mut Budget) {
        totals.end_changes();
        for (account, change) in self.by_account {
            accounts.change(account, change, Amount::default(), self.tick, budget);
        }
        budget.change_live(self.live, Amount::default(), self.tick);
    }
}
