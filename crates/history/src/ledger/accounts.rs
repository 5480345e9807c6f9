//! Accounts of images: counters since the start of the trace, and water marks since the last take
//! (`Ledger::take_accounts`).

use std::collections::VecDeque;

use memtrace_model::{AccountCounters, AllocatorId, Amount, LossReason, Part, PartKeys, TagId, Tick, Tid};
use rustc_hash::FxHashMap;

use super::account_budget::AccountCounts;
use super::block::Block;
use super::budget::Budget;
use super::stack_totals::ImageTotals;
use crate::account_changes::{AccountGroupId, AccountState, WaterMarks};

/// If an image has at most this number of stacks, a merge of its ended threads does not wait for more threads. Reading
/// the stacks takes some ten microseconds.
const FEW_STACKS: usize = 4096;

/// Number of stacks beyond [`FEW_STACKS`] for each further thread that a merge waits for.
const STACKS_PER_THREAD: usize = 64;

/// Accounts of one image; `None` before the first account.
#[derive(Debug, Default)]
pub(super) struct Accounts(Option<Box<Table>>);

#[derive(Debug, Default)]
struct Table {
    all: Vec<Account>,
    by_part: FxHashMap<Part, u32>,
    /// Number of parts that share the account of the image.
    shared: u32,
    /// Index of the account of each stack, by the index of the stack; `u32::MAX` if it is not set.
    of_stacks: Vec<u32>,
    /// Indices of the accounts that have changed since the last take.
    changed: Vec<u32>,
    /// Free indices of `all`.
    vacant: Vec<u32>,
    /// Threads that have ended and are not merged, ordered by end.
    ended: VecDeque<EndedThread>,
    /// Number of threads at the end of `ended` that have ended since the last take.
    just_ended: usize,
}

/// A thread that has ended.
#[derive(Clone, Copy, Debug)]
struct EndedThread {
    tid: Tid,
    at: Tick,
    /// Number of allocations of the thread's accounts at the first take after its end. If the accounts have more
    /// allocations later, a new thread with the same ID runs.
    allocations: u64,
}

#[derive(Debug)]
struct Account {
    account: Part,
    is_changed: bool,
    /// Group that has the account as a member.
    group: Option<AccountGroupId>,
    peak_at: Tick,
    counters: AccountCounters,
    /// Water marks since the last take. They are not kept for a member of a group.
    marks: WaterMarks,
}

/// Low-water marks of an account, its group, and all images before the tentative free of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LowMarks {
    /// Index of the account.
    account: u32,
    of_account: Amount,
    of_group: Amount,
    of_all: Amount,
    /// Number of takes of the accounts before the free.
    takes: u32,
}

impl Accounts {
    /// Counts a new block. `totals` must contain the block already. `amount`: bytes and blocks that it stands for.
    #[inline]
    pub(super) fn alloc(&mut self, totals: &ImageTotals, block: &Block, amount: Amount, budget: &mut Budget) {
        let Some(table) = self.table(budget) else { return };
        let index = table.of_allocation(totals, block.stack, amount, budget);
        let group = table.raise(index, block.tick, |counters| counters.alloc += amount);
        raise_group(group, amount, block.tick, budget);
    }

    /// Counts the free of a block at `tick`. `amount`: bytes and blocks that it stands for. `by`: thread that frees the
    /// block, if it is known.
    #[inline]
    pub(super) fn free(
        &mut self,
        totals: &ImageTotals,
        block: &Block,
        amount: Amount,
        by: Option<Tid>,
        tick: Tick,
        budget: &mut Budget,
    ) {
        let Some(table) = self.table(budget) else { return };
        let index = table.of_stack(totals, block.stack, budget);
        let group = table.lower(index, tick, |counters| {
            counters.free += amount;
            if by.is_some_and(|by| is_of_other(totals, block, by)) {
                counters.free_by_others += amount;
            }
        });
        if let (Some(group), Some(accounts)) = (group, &mut budget.accounts) {
            accounts.groups.lower(group, amount, tick);
        }
    }

    /// Takes back the free of a block by the thread `by`. `amount`: bytes and blocks that the block stands for.
    pub(super) fn undo_free(
        &mut self,
        totals: &ImageTotals,
        block: &Block,
        amount: Amount,
        by: Tid,
        tick: Tick,
        budget: &mut Budget,
    ) {
        let Some(table) = self.table(budget) else { return };
        let index = table.of_stack(totals, block.stack, budget);
        let group = table.raise(index, tick, |counters| {
            counters.free -= amount;
            if is_of_other(totals, block, by) {
                counters.free_by_others -= amount;
            }
        });
        raise_group(group, amount, tick, budget);
    }

    /// Returns the account of a stack that has just allocated `alloc`; `None` without accounts.
    pub(super) fn of_allocation(
        &mut self,
        totals: &ImageTotals,
        stack: u32,
        alloc: Amount,
        budget: &mut Budget,
    ) -> Option<u32> {
        self.table(budget).map(|table| table.of_allocation(totals, stack, alloc, budget))
    }

    /// Returns the account of a stack; `None` without accounts.
    pub(super) fn of_stack(&mut self, totals: &ImageTotals, stack: u32, budget: &mut Budget) -> Option<u32> {
        self.table(budget).map(|table| table.of_stack(totals, stack, budget))
    }

    /// Adds allocations and frees of an account that happened until `tick`. Only their sum counts for the water marks.
    pub(super) fn change(&mut self, account: u32, alloc: Amount, free: Amount, tick: Tick, budget: &mut Budget) {
        let Some(table) = self.table(budget) else { return };
        let Some(group) = table.change(account, alloc, free, tick) else { return };
        if let Some(accounts) = &mut budget.accounts {
            accounts.groups.change(group, alloc, free, tick);
        }
    }

    /// Returns the low-water marks before the free of a block; `None` without accounts.
    pub(super) fn low_marks(&mut self, totals: &ImageTotals, block: &Block, budget: &mut Budget) -> Option<LowMarks> {
        let table = self.table(budget)?;
        let account = table.of_stack(totals, block.stack, budget);
        let known = table.all.get(account as usize)?;
        let of_account = known.marks_at_change().low;
        let accounts = budget.accounts.as_ref()?;
        let of_group = known.group.map(|group| accounts.groups.low_mark(group)).unwrap_or_default();
        let (of_all, takes) = accounts.low_mark();
        Some(LowMarks { account, of_account, of_group, of_all, takes })
    }

    /// Corrects the low-water marks after [`Self::undo_free`]: the block was live all the time since `before`, so
    /// the marks can be too low. Marks that were taken since then are not corrected. If two blocks are tentatively
    /// freed at the same time, the marks stay too low.
    pub(super) fn restore_low_marks(&mut self, before: &LowMarks, block: Amount, budget: &mut Budget) {
        let (Some(table), Some(all)) = (&mut self.0, &mut budget.accounts) else { return };
        if all.restore_low_mark(before.of_all, block, before.takes)
            && let Some(account) = table.all.get_mut(before.account as usize)
        {
            account.marks.restore_low(before.of_account, block);
            if let Some(group) = account.group {
                all.groups.restore_low_mark(group, before.of_group, block);
            }
        }
    }

    /// Counts the free of an unknown block by the thread `by`. Returns the index of the account that counts the
    /// free, for [`Self::undo_unmatched`].
    #[inline]
    pub(super) fn add_unmatched(&mut self, by: Tid, tick: Tick, budget: &mut Budget) -> Option<u32> {
        self.table(budget).map(|table| table.add_unmatched(by, tick, budget))
    }

    /// Takes back the free of an unknown block.
    pub(super) fn undo_unmatched(&mut self, account: u32, tick: Tick) {
        if let Some(table) = &mut self.0
            && let Some(Account { counters, .. }) = table.changing(account, tick)
        {
            counters.unmatched_frees = counters.unmatched_frees.saturating_sub(1);
        }
    }

    /// Records the end of a thread.
    pub(super) fn end_thread(&mut self, tid: Tid, at: Tick) {
        if let Some(table) = &mut self.0 {
            table.ended.push_back(EndedThread { tid, at, allocations: 0 });
            table.just_ended += 1;
        }
    }

    /// Removes and returns the ended threads to merge, with the times of their ends. `stacks`: number of stacks of
    /// the image. A merge reads all stacks, so it waits for more threads if there are many stacks.
    pub(super) fn take_ended_threads(&mut self, stacks: usize, budget: &Budget) -> FxHashMap<Tid, Tick> {
        let (Some(table), Some(accounts)) = (&mut self.0, &budget.accounts) else { return FxHashMap::default() };
        table.take_ended_threads(accounts.kept_threads, stacks.saturating_sub(FEW_STACKS) / STACKS_PER_THREAD)
    }

    /// Merges the accounts of ended threads into the image's account of ended threads. Returns the parts that have
    /// no account any more.
    pub(super) fn merge_threads(&mut self, ended: &FxHashMap<Tid, Tick>, budget: &mut Budget) -> Vec<Part> {
        self.0.as_mut().map(|table| table.merge_threads(ended, budget)).unwrap_or_default()
    }

    /// Makes an account a member of a group. Returns the live amount of the account; `None` if there is no such
    /// account, or if it is a member of a group already.
    pub(super) fn join(&mut self, part: Part, group: AccountGroupId) -> Option<Amount> {
        let table = self.0.as_mut()?;
        let index = *table.by_part.get(&part)?;
        let account = table.all.get_mut(index as usize)?;
        if account.account != part || account.group.is_some() {
            return None;
        }
        account.group = Some(group);
        Some(account.counters.current())
    }

    /// Removes the amounts of all accounts from their groups at the end of the image.
    pub(super) fn leave_groups(&self, tick: Tick, budget: &mut Budget) {
        let (Some(table), Some(all)) = (&self.0, &mut budget.accounts) else { return };
        for account in &table.all {
            if let Some(group) = account.group {
                all.groups.lower(group, account.counters.current(), tick);
            }
        }
    }

    /// Returns the numbers of accounts, and of parts that share the account of the image.
    pub(super) fn counts(&self) -> AccountCounts {
        self.0
            .as_ref()
            .map_or_else(AccountCounts::default, |table| AccountCounts { own: table.len(), shared: table.shared })
    }

    /// Returns the accounts that have changed, and starts new water marks.
    pub(super) fn take_changed(&mut self) -> Vec<AccountState> {
        self.0.as_mut().map(|table| table.take_changed()).unwrap_or_default()
    }

    #[inline]
    fn table(&mut self, budget: &Budget) -> Option<&mut Table> {
        budget.accounts.as_ref()?;
        Some(self.0.get_or_insert_default())
    }
}

impl Account {
    /// Returns the water marks since the last take.
    fn marks_at_change(&self) -> WaterMarks {
        if self.is_changed { self.marks } else { WaterMarks::at(self.counters.current()) }
    }
}

/// Returns the keys of the parts with accounts of their own.
fn account_keys(budget: &Budget) -> PartKeys {
    budget.accounts.as_ref().map_or(PartKeys::NONE, |accounts| accounts.parts)
}

/// Returns true if a thread other than `tid` has allocated the block.
#[inline]
fn is_of_other(totals: &ImageTotals, block: &Block, tid: Tid) -> bool {
    totals.part(block.stack).thread().is_some_and(|owner| owner != tid)
}

/// Adds a block to a group.
#[inline]
fn raise_group(group: Option<AccountGroupId>, amount: Amount, tick: Tick, budget: &mut Budget) {
    if let (Some(group), Some(accounts)) = (group, &mut budget.accounts) {
        accounts.groups.raise(group, amount, tick);
    }
}

impl Table {
    #[cold]
    fn add_unmatched(&mut self, by: Tid, tick: Tick, budget: &mut Budget) -> u32 {
        // The allocator and the tag of an unknown block are not known.
        let part = Part::WHOLE.with_thread(by).with_allocator(AllocatorId::UNKNOWN).with_tag(TagId::UNTAGGED);
        let part = part.restricted_to(account_keys(budget));
        let index = self.index(part, budget);
        if let Some(Account { counters, .. }) = self.changing(index, tick) {
            counters.unmatched_frees += 1;
        }
        index
    }

    fn len(&self) -> u32 {
        // The maximum number of accounts is a u32.
        (self.all.len() - self.vacant.len()) as u32
    }

    /// Removes and returns the ended threads except the last `kept` ones, if there are more than `least` of them.
    /// Leaves out threads with an ID that a new thread uses.
    fn take_ended_threads(&mut self, kept: usize, least: usize) -> FxHashMap<Tid, Tick> {
        let count = self.ended.len().saturating_sub(kept);
        let due = if count > least { count } else { 0 };
        let just_ended = std::mem::take(&mut self.just_ended).min(self.ended.len());
        if due == 0 && just_ended == 0 {
            return FxHashMap::default();
        }
        let mut allocations: FxHashMap<Tid, u64> = FxHashMap::default();
        let new = self.ended.range(self.ended.len() - just_ended..);
        allocations.extend(new.chain(self.ended.range(..due)).map(|thread| (thread.tid, 0)));
        for (part, &index) in &self.by_part {
            if let Some(count) = part.thread().and_then(|tid| allocations.get_mut(&tid))
                && self.is_own(*part, index)
            {
                *count += self.all[index as usize].counters.alloc.count;
            }
        }
        let first_new = self.ended.len() - just_ended;
        for thread in self.ended.range_mut(first_new..) {
            thread.allocations = allocations.get(&thread.tid).copied().unwrap_or_default();
        }
        let is_over =
            |thread: &EndedThread| allocations.get(&thread.tid).is_none_or(|count| *count == thread.allocations);
        let ended: Vec<EndedThread> = self.ended.drain(..due).collect();
        ended.into_iter().filter(is_over).map(|thread| (thread.tid, thread.at)).collect()
    }

    fn merge_threads(&mut self, ended: &FxHashMap<Tid, Tick>, budget: &mut Budget) -> Vec<Part> {
        let is_ended = |part: &Part, _: &mut u32| part.thread().is_some_and(|tid| ended.contains_key(&tid));
        let parts: Vec<_> = self.by_part.extract_if(is_ended).collect();
        let (own, shared): (Vec<_>, Vec<_>) = parts.into_iter().partition(|&(part, index)| self.is_own(part, index));
        self.shared -= shared.len() as u32;
        if let Some(accounts) = &mut budget.accounts {
            accounts.release(AccountCounts { own: own.len() as u32, shared: shared.len() as u32 });
        }
        let mut merged = FxHashMap::default();
        for &(part, index) in &own {
            let Some(&Account { counters, group, .. }) = self.all.get(index as usize) else { continue };
            let into = self.index(part.with_thread(Tid::ENDED), budget);
            let tick = part.thread().and_then(|tid| ended.get(&tid)).copied().unwrap_or_default();
            self.raise(into, tick, |sum| sum.add(&counters));
            if let (Some(group), Some(accounts)) = (group, &mut budget.accounts) {
                accounts.groups.lower(group, counters.current(), tick);
            }
            merged.insert(index, into);
        }
        self.changed.retain(|index| !merged.contains_key(index));
        for index in &mut self.of_stacks {
            *index = merged.get(index).copied().unwrap_or(*index);
        }
        self.vacant.extend(merged.into_keys());
        own.into_iter().map(|(part, _)| part).collect()
    }

    /// Returns false if the part shares the account of its image.
    fn is_own(&self, part: Part, index: u32) -> bool {
        self.all.get(index as usize).is_some_and(|account| account.account == part)
    }

    fn take_changed(&mut self) -> Vec<AccountState> {
        let mut states = Vec::with_capacity(self.changed.len());
        for index in self.changed.drain(..) {
            let Some(Account { account, is_changed, peak_at, counters, marks, .. }) = self.all.get_mut(index as usize)
            else {
                continue;
            };
            *is_changed = false;
            states.push(AccountState { account: *account, counters: *counters, marks: *marks, peak_at: *peak_at });
        }
        states
    }

    /// Returns the account of a stack that has just allocated `alloc`. The index of the stack can have belonged to another
    /// stack before.
    #[inline]
    fn of_allocation(&mut self, totals: &ImageTotals, stack: u32, alloc: Amount, budget: &mut Budget) -> u32 {
        if totals.has_allocated_only(stack, alloc) {
            self.assign(totals, stack, budget)
        } else {
            self.of_stack(totals, stack, budget)
        }
    }

    /// Returns the account of the blocks of a stack.
    #[inline]
    fn of_stack(&mut self, totals: &ImageTotals, stack: u32, budget: &mut Budget) -> u32 {
        match self.of_stacks.get(stack as usize) {
            Some(&index) if index != u32::MAX => index,
            _ => self.assign(totals, stack, budget),
        }
    }

    /// Sets the account of a stack. The account stays until the stack is merged. A merged stack has no live blocks,
    /// and its index can be used for another stack.
    #[cold]
    fn assign(&mut self, totals: &ImageTotals, stack: u32, budget: &mut Budget) -> u32 {
        let index = self.index(totals.part(stack).restricted_to(account_keys(budget)), budget);
        let stack = stack as usize;
        if self.of_stacks.len() <= stack {
            self.of_stacks.resize(stack + 1, u32::MAX);
        }
        self.of_stacks[stack] = index;
        index
    }

    /// Returns the index of the account of a part. Adds the account if it is new. If the limit is reached, counts a
    /// loss and returns the account of the image. The loss is counted once for a part, unless too many parts share
    /// the account of their image.
    fn index(&mut self, part: Part, budget: &mut Budget) -> u32 {
        if let Some(&index) = self.by_part.get(&part) {
            return index;
        }
        // The account of ended threads replaces accounts of threads, and each image has at least one account.
        let always_fits = part == Part::WHOLE || part.thread() == Some(Tid::ENDED);
        if budget.accounts.as_mut().is_none_or(|accounts| accounts.request(always_fits)) {
            return self.add(part);
        }
        budget.losses.add(LossReason::AccountsFull, 1);
        let index = self.index(Part::WHOLE, budget);
        if budget.accounts.as_mut().is_some_and(|accounts| accounts.request_shared()) {
            self.by_part.insert(part, index);
            self.shared += 1;
        }
        index
    }

    fn add(&mut self, account: Part) -> u32 {
        let new = Account {
            account,
            is_changed: false,
            group: None,
            peak_at: Tick::default(),
            counters: AccountCounters::default(),
            marks: WaterMarks::default(),
        };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.all[index as usize] = new;
                index
            }
            None => {
                self.all.push(new);
                // The maximum number of accounts is a u32.
                self.all.len() as u32 - 1
            }
        };
        self.by_part.insert(account, index);
        index
    }

    /// Adds a block to an account, or takes back a free. If the account is a member of a group, returns the group,
    /// which has the water marks.
    #[inline]
    fn raise(&mut self, index: u32, tick: Tick, change: impl FnOnce(&mut AccountCounters)) -> Option<AccountGroupId> {
        let account = self.changing(index, tick)?;
        change(&mut account.counters);
        if account.group.is_none() && account.marks.raise(account.counters.current()) {
            account.peak_at = tick;
        }
        account.group
    }

    /// Removes a block from an account. If the account is a member of a group, returns the group, which has the water
    /// marks.
    #[inline]
    fn lower(&mut self, index: u32, tick: Tick, change: impl FnOnce(&mut AccountCounters)) -> Option<AccountGroupId> {
        let account = self.changing(index, tick)?;
        change(&mut account.counters);
        if account.group.is_none() {
            account.marks.lower(account.counters.current());
        }
        account.group
    }

    /// Adds allocations and frees to an account. If the account is a member of a group, returns the group, which has the
    /// water marks.
    fn change(&mut self, index: u32, alloc: Amount, free: Amount, tick: Tick) -> Option<AccountGroupId> {
        let account = self.changing(index, tick)?;
        account.counters.alloc += alloc;
        account.counters.free += free;
        let current = account.counters.current();
        if account.group.is_none() {
            account.marks.lower(current);
            if account.marks.raise(current) {
                account.peak_at = tick;
            }
        }
        account.group
    }

    /// Returns an account that is about to change at `tick`. Starts its water marks if it has not changed since the
    /// last take.
    #[inline]
    fn changing(&mut self, index: u32, tick: Tick) -> Option<&mut Account> {
        let account = self.all.get_mut(index as usize)?;
        if !account.is_changed {
            account.marks = account.marks_at_change();
            account.is_changed = true;
            account.peak_at = tick;
            self.changed.push(index);
        }
        Some(account)
    }
}
