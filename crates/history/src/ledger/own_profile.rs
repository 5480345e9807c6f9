//! Heap profile that a target keeps: the totals of its stacks change between two readings, without blocks.

use std::collections::BTreeMap;

use memtrace_model::{Amount, LossReason, Part, PartKeys, ProfileChange, SampleSum, StackKey, TagId, Tick, Tid};
use rustc_hash::FxHashMap;

use super::accounts::Accounts;
use super::budget::Budget;
use super::stack_totals::ImageTotals;

/// Reading of a profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    /// Number of earlier readings of the image.
    pub(super) number: u32,
    pub(super) changes: &'a [ProfileChange],
    /// Thread of the event.
    pub(super) tid: Tid,
    /// Keys of the parts with totals of their own.
    pub(super) parts: PartKeys,
    pub(super) tick: Tick,
}

/// State of the profile of an image.
#[derive(Debug, Default)]
pub(super) struct OwnProfile {
    /// Number of readings so far.
    readings: u32,
    /// Live amounts of the profile by the index of the stack. Stacks without a live amount have no entry: such a stack can
    /// be merged, and its index can belong to another stack.
    live: FxHashMap<u32, SampleSum>,
}

/// Sums of the changes of a reading.
#[derive(Debug, Default)]
struct Sums {
    alloc: Amount,
    free: Amount,
    /// Allocated and freed amounts by the index of the account.
    by_account: BTreeMap<u32, [Amount; 2]>,
}

impl OwnProfile {
    /// Applies a reading to the totals of an image. If an earlier reading is missing, counts a loss, because the changes
    /// refer to the totals of that reading. Returns false if no reading was applied so far.
    pub(super) fn apply(
        &mut self,
        reading: Reading<'_>,
        totals: &mut ImageTotals,
        accounts: &mut Accounts,
        budget: &mut Budget,
    ) -> bool {
        let Reading { number, changes, tick, .. } = reading;
        if number != self.readings {
            budget.losses.add(LossReason::ProfileUnread, 1);
            return self.readings > 0;
        }
        self.readings = self.readings.saturating_add(1);
        let mut sums = Sums::default();
        // All allocations come first, because several changes can be of one stack.
        for change in changes {
            let alloc = positive(change.alloc);
            if alloc.amount != Amount::default() {
                let stack = totals.index_or_insert(reading.key(change), budget);
                totals.add_samples(stack, alloc, budget);
                *self.live.entry(stack).or_default() += alloc;
                sums.add_alloc(accounts.of_allocation(totals, stack, alloc.amount, budget), alloc.amount);
            }
        }
        for change in changes {
            let mut rest = positive(change.free);
            if rest.amount == Amount::default() {
                continue;
            }
            let own = totals.index(reading.key(change));
            // If the stack did not fit at an earlier reading, `StackId::FAILED` has a part of its live amount.
            let failed = totals.failed().filter(|failed| own != Some(*failed));
            for stack in own.into_iter().chain(failed) {
                let freed = self.free(stack, &mut rest);
                if freed.amount != Amount::default() {
                    totals.subtract_profiled(stack, freed);
                    sums.add_free(accounts.of_stack(totals, stack, budget), freed.amount);
                }
            }
            if rest.amount != Amount::default() {
                budget.losses.add(LossReason::BadRecord, 1);
            }
        }
        totals.end_changes();
        for (account, [alloc, free]) in sums.by_account {
            accounts.change(account, alloc, free, tick, budget);
        }
        budget.change_live(sums.alloc, sums.free, tick);
        true
    }

    /// Subtracts as much of `rest` as possible from the live amount of a stack, and from `rest`. Returns the subtracted
    /// sum. So no live amount becomes negative, even if a damaged profile has more frees than allocations.
    fn free(&mut self, stack: u32, rest: &mut SampleSum) -> SampleSum {
        let Some(live) = self.live.get_mut(&stack) else { return SampleSum::default() };
        let is_part = rest.amount != live.amount && rest.amount.lesser(live.amount) == rest.amount;
        // If nothing remains live, no spread remains either.
        let freed = if is_part { *rest } else { *live };
        let amount = rest.amount.saturating_sub(freed.amount);
        *rest -= freed;
        rest.amount = amount;
        *live -= freed;
        if live.amount == Amount::default() {
            self.live.remove(&stack);
        }
        freed
    }
}

impl Reading<'_> {
    fn key(&self, change: &ProfileChange) -> StackKey {
        let part = Part::WHOLE.with_thread(self.tid).with_allocator(change.allocator).with_tag(TagId::UNTAGGED);
        StackKey { stack: change.stack, part: part.restricted_to(self.parts) }
    }
}

impl Sums {
    fn add_alloc(&mut self, account: Option<u32>, amount: Amount) {
        self.alloc += amount;
        if let Some(account) = account {
            self.by_account.entry(account).or_default()[0] += amount;
        }
    }

    fn add_free(&mut self, account: Option<u32>, amount: Amount) {
        self.free += amount;
        if let Some(account) = account {
            self.by_account.entry(account).or_default()[1] += amount;
        }
    }
}

/// Returns the sum with 0 in place of negative amounts. Only a damaged profile has such changes.
fn positive(sum: SampleSum) -> SampleSum {
    SampleSum { amount: sum.amount.increase(), ..sum }
}
