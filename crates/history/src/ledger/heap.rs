//! Blocks of one process image, and their totals and accounts.

mod dropped;

use std::hint::black_box;

use memtrace_model::{
    AbsAddr, Amount, BlockQuantity, Bytes, Demotion, EventClass, ImageEnd, ImageUsage, Log2, LossReason, Part,
    Quantities, Quantity, StackKey, Tick, Tid, TouchedPages,
};
use rustc_hash::FxHashSet;

use super::accounts::Accounts;
use super::address_table::{AddressTable, Addressed as _, Slot};
use super::block::Block;
use super::block_ages;
use super::budget::{Budget, Settings};
use super::stack_totals::{ImageTotals, StackTotals};
use super::tentative_free::{TentativeFree, TentativeFrees};

/// Blocks of one process image.
#[derive(Debug, Default)]
pub(super) struct Heap {
    blocks: AddressTable<Block>,
    tentative_frees: TentativeFrees,
    pub(super) totals: ImageTotals,
    unmatched_frees: u64,
    repeated_frees: u64,
    /// Unmatched and repeated frees at the last delta.
    frees_before: [u64; 2],
    demotion: Demotion,
    /// Demotion at the last delta.
    demotion_before: Demotion,
    pub(super) accounts: Accounts,
}

/// Maximum number of chunks. [`Heap::usage`] builds the map of stacks chunk by chunk.
const CHUNKS: usize = 8;

/// Minimum number of stacks in a chunk, because adding a chunk copies all earlier chunks. This number of stacks
/// takes three mebibytes.
const MIN_CHUNK: usize = 1 << 14;

/// A call that frees a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeCall {
    pub(super) tid: Tid,
    /// True if the latest allocation of the thread has returned the address.
    pub(super) is_last: bool,
    pub(super) tick: Tick,
}

/// Reference to the index of a stack. It is not checked that this is the right stack: a wrong index only costs a cache
/// miss.
#[derive(Clone, Copy)]
pub(super) struct StackPlace<'a> {
    stack: Option<&'a u32>,
    totals: &'a ImageTotals,
}

impl<'a> StackPlace<'a> {
    /// Reads the index, and returns the totals of the stack.
    #[inline]
    pub(super) fn totals(self) -> Option<&'a StackTotals> {
        self.totals.get(*self.stack?)
    }
}

impl Heap {
    #[inline]
    pub(super) fn alloc(
        &mut self,
        address: AbsAddr,
        size: Bytes,
        key: StackKey,
        tid: Tid,
        tick: Tick,
        budget: &mut Budget,
    ) {
        match self.blocks.slot(Block::key(address)) {
            Slot::Occupied(mut entry) => {
                // The free of the old block was lost.
                let lost = *entry.get();
                budget.losses.add(LossReason::FreeUnseen, 1);
                self.accounts.free(&self.totals, &lost, None, tick, budget);
                self.totals.free(lost.stack, Amount::one(lost.size));
                // The time of the lost free is not known. It was at this tick or earlier.
                count_lifetime(&mut self.totals, &lost, tick, 1, budget);
                budget.remove_live(Amount::one(lost.size));
                let stack = self.totals.index_or_insert(key, budget);
                let block = Block::new(address, tid, size, stack, tick);
                *entry.get_mut() = block;
                self.totals.alloc(stack, Amount::one(size));
                self.accounts.alloc(&self.totals, &block, budget);
                count_size(&mut self.totals, &block, budget);
                change_epoch(&mut self.totals, &lost, Amount::default() - Amount::one(lost.size), budget);
                change_epoch(&mut self.totals, &block, Amount::one(size), budget);
            }
            Slot::Vacant(_) if size < self.demotion.min_size => {
                self.alloc_dropped(address, size, key, tid, tick, budget);
                return;
            }
            Slot::Vacant(entry) => {
                if budget.live.count >= budget.max_blocks {
                    budget.losses.add(LossReason::LedgerFull, 1);
                    return;
                }
                let stack = self.totals.index_or_insert(key, budget);
                let block = Block::new(address, tid, size, stack, tick);
                entry.insert(block);
                self.totals.alloc(stack, Amount::one(size));
                self.accounts.alloc(&self.totals, &block, budget);
                count_size(&mut self.totals, &block, budget);
                change_epoch(&mut self.totals, &block, Amount::one(size), budget);
            }
        }
        budget.add_live(Amount::one(size), tick);
    }

    /// Reads the hash table tags that [`Self::alloc`] will read, and returns the place of the stack's index.
    #[inline]
    pub(super) fn place_of_alloc(&self, address: AbsAddr, key: StackKey) -> StackPlace<'_> {
        black_box(self.blocks.likely(Block::key(address)));
        StackPlace { stack: self.totals.likely_index(key), totals: &self.totals }
    }

    /// Reads the hash table tags that [`Self::free`] will read, and returns the place of the stack's index, which
    /// is in the block.
    #[inline]
    pub(super) fn place_of_free(&self, address: AbsAddr) -> StackPlace<'_> {
        let block = self.blocks.likely(Block::key(address));
        StackPlace { stack: block.map(|block| &block.stack), totals: &self.totals }
    }

    /// Frees a block.
    #[inline]
    pub(super) fn free(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) {
        if self.remove_live(address, call, budget).is_none() {
            self.count_unknown_free(call.tid, call.tick, budget);
        }
    }

    /// Counts a repeated free. If the block is still live, its first free was lost, and the block is freed.
    pub(super) fn free_again(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) {
        if self.remove_live(address, call, budget).is_none() {
            self.repeated_frees += 1;
        }
    }

    /// Moves a block to another part of the process. It counts as freed in its old part, and as allocated in the
    /// new part with the same stack. The age of the block does not change. An unknown block counts as an unmatched
    /// free.
    pub(super) fn claim(&mut self, address: AbsAddr, part: Part, tid: Tid, tick: Tick, budget: &mut Budget) {
        let Slot::Occupied(mut entry) = self.blocks.slot(Block::key(address)) else {
            self.count_unknown_free(tid, tick, budget);
            return;
        };
        let old = *entry.get();
        let amount = Amount::one(old.size);
        let StackKey { stack, part: old_part } = self.totals.key(old.stack);
        let part = old_part.allocator().map_or(part, |id| part.with_allocator(id));
        self.accounts.free(&self.totals, &old, None, tick, budget);
        self.totals.free(old.stack, amount);
        count_lifetime(&mut self.totals, &old, tick, 1, budget);
        change_epoch(&mut self.totals, &old, Amount::default() - amount, budget);
        let stack = self.totals.index_or_insert(StackKey { stack, part }, budget);
        let block = Block::new(address, tid, old.size, stack, old.tick);
        *entry.get_mut() = block;
        self.totals.alloc(stack, amount);
        self.accounts.alloc(&self.totals, &Block::new(address, tid, old.size, stack, tick), budget);
        count_size(&mut self.totals, &block, budget);
        change_epoch(&mut self.totals, &block, amount, budget);
    }

    pub(super) fn free_tentatively(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) {
        let FreeCall { tid, tick, .. } = call;
        let known = self.blocks.get(Block::key(address)).copied();
        let marks = known.and_then(|block| self.accounts.low_marks(&self.totals, &block, budget));
        let (block, is_temporary) = self.remove_live(address, call, budget).unzip();
        let is_temporary = is_temporary.unwrap_or(false);
        let unknown = block.is_none().then(|| self.count_unknown_free(tid, tick, budget));
        self.tentative_frees.insert(tid, TentativeFree { address, block, tick, is_temporary, marks, unknown });
    }

    pub(super) fn undo_free(&mut self, tid: Tid, address: AbsAddr, now: Tick, budget: &mut Budget) {
        let Some(undone) = self.tentative_frees.remove(tid, address) else { return };
        let Slot::Vacant(entry) = self.blocks.slot(Block::key(address)) else { return };
        match undone.block {
            Some(block) => {
                entry.insert(block);
                self.totals.undo_free(block.stack, Amount::one(block.size));
                if undone.is_temporary {
                    self.totals.add_temporary(block.stack, Amount::default() - Amount::one(block.size));
                }
                count_lifetime(&mut self.totals, &block, undone.tick, 1_u64.wrapping_neg(), budget);
                change_epoch(&mut self.totals, &block, Amount::one(block.size), budget);
                self.accounts.undo_free(&self.totals, &block, tid, now, budget);
                budget.add_live(Amount::one(block.size), now);
                if let Some(marks) = &undone.marks {
                    self.accounts.restore_low_marks(marks, Amount::one(block.size), budget);
                }
            }
            None => undone.unknown.into_iter().for_each(|free| self.undo_unknown_free(free, now)),
        }
    }

    pub(super) const fn live(&self) -> Amount {
        self.totals.live()
    }

    /// Returns the usage at the end of the image or, while the image runs, at `now`. Only blocks that are at least
    /// as old as `settings.older` count as live or held at exit.
    pub(super) fn usage(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> ImageUsage {
        let &Settings { older, track_peak, lifetimes, .. } = settings;
        let (unmatched_frees, repeated_frees) = (self.unmatched_frees, self.repeated_frees);
        let merged_stacks = self.totals.merged();
        let demotion = self.effective_demotion();
        let mut usage =
            ImageUsage { ended, unmatched_frees, repeated_frees, demotion, merged_stacks, ..ImageUsage::default() };
        usage.peak = track_peak.then_some(self.totals.peak());
        let live_of_age = older.map(|older| block_ages::live_of_age(&self.blocks, self.totals.len(), now, older));
        let mut of_stack = |index: usize, totals: &StackTotals| {
            let of_age = live_of_age.as_ref().filter(|_| ended != Some(ImageEnd::Exec)).map(|of_age| of_age[index]);
            let live = of_age.unwrap_or(totals.live);
            let left_out = totals.live - live;
            let at_peak = if track_peak { self.totals.at_peak(totals) } else { Bytes(0) };
            let mut stack_usage = Quantities::of_blocks([live, totals.alloc, totals.temporary])
                .with_amount(Quantity::LeftOutBytes, left_out)
                .with(Quantity::AtPeakBytes, at_peak.0);
            if let Some(end) = ended {
                stack_usage.end(end, EventClass::Heap);
            }
            usage.total += stack_usage.additive();
            (totals.key, stack_usage)
        };
        let mut stacks: Vec<_> = self.totals.iter().collect();
        stacks.sort_unstable_by_key(|(_, totals)| totals.key);
        // Collecting sorted entries gives the smallest map. Collecting all at once would take the memory of all
        // entries again.
        for chunk in stacks.chunks(MIN_CHUNK.max(stacks.len().div_ceil(CHUNKS))) {
            let mut chunk = chunk.iter().map(|&(index, totals)| of_stack(index, totals)).collect();
            usage.by_stack.append(&mut chunk);
        }
        usage.histograms = self.totals.histograms().collect();
        if lifetimes && ended != Some(ImageEnd::Exec) {
            self.add_ages(&mut usage, now);
        }
        usage
    }

    /// Adds the hot and cold bytes of the live blocks.
    pub(super) fn add_touches(&self, usage: &mut ImageUsage, pages: &TouchedPages) {
        let mut sums = vec![(Bytes(0), Bytes(0)); self.totals.len()];
        for block in self.blocks.iter() {
            let start = block.address();
            let (hot, cold) = pages.hot_and_cold(start, AbsAddr(start.0.saturating_add(block.size.0)));
            if let Some(sum) = sums.get_mut(block.stack as usize) {
                sum.0.0 += hot.0;
                sum.1.0 += cold.0;
            }
        }
        for (index, totals) in self.totals.iter() {
            let (hot, cold) = sums[index];
            let touches = Quantities::ZERO.with(Quantity::HotBytes, hot.0).with(Quantity::ColdBytes, cold.0);
            usage.total += touches;
            *usage.by_stack.entry(totals.key).or_default() += touches;
        }
    }

    /// Adds the ages of all live blocks at `now`.
    fn add_ages(&self, usage: &mut ImageUsage, now: Tick) {
        let ages = block_ages::histograms(&self.blocks, self.totals.len(), now);
        for (index, totals) in self.totals.iter() {
            if !ages[index].is_empty() {
                usage.histograms.entry(totals.key).or_default().add(&ages[index]);
            }
        }
    }

    /// Removes a live block. Returns the block, and true if it is temporary; `None` if the block is unknown.
    #[inline]
    fn remove_live(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) -> Option<(Block, bool)> {
        let FreeCall { tid, is_last, tick } = call;
        let block = self.blocks.remove(Block::key(address))?;
        self.totals.free(block.stack, Amount::one(block.size));
        // Another thread can have allocated a block at the same address since, and passed it to this thread.
        let is_temporary = is_last && block.may_be_of(tid);
        if is_temporary {
            self.totals.add_temporary(block.stack, Amount::one(block.size));
        }
        count_lifetime(&mut self.totals, &block, tick, 1, budget);
        change_epoch(&mut self.totals, &block, Amount::default() - Amount::one(block.size), budget);
        self.accounts.free(&self.totals, &block, Some(tid), tick, budget);
        budget.remove_live(Amount::one(block.size));
        Some((block, is_temporary))
    }

    /// Records the end of a thread.
    pub(super) fn end_thread(&mut self, tid: Tid, tick: Tick) {
        self.tentative_frees.forget(tid);
        self.accounts.end_thread(tid, tick);
    }

    /// Merges the accounts of ended threads, except the last ones, into one account. Merges the stacks of these threads
    /// that have no live blocks. Returns the merged threads, and the parts that have no account any more.
    pub(super) fn merge_ended_threads(&mut self, budget: &mut Budget) -> (Vec<Tid>, Vec<Part>) {
        let ended = self.accounts.take_ended_threads(self.totals.len(), budget);
        if ended.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let pinned = self.pinned();
        let removed = self.totals.end_threads(|tid| ended.contains_key(&tid), |index| pinned.contains(&index));
        budget.totals.release(removed);
        let merged = self.accounts.merge_threads(&ended, budget);
        (ended.into_keys().collect(), merged)
    }

    /// Iterates over the stacks that can be merged, with their totals.
    pub(super) fn idle(&self) -> impl Iterator<Item = (StackKey, Quantities)> {
        let pinned = self.pinned();
        self.totals.idle(move |index| pinned.contains(&index))
    }

    /// Returns the indices of the stacks with tentatively freed blocks, which a failed call restores.
    fn pinned(&self) -> FxHashSet<u32> {
        self.tentative_frees.stacks().collect()
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        let now = [self.unmatched_frees, self.repeated_frees];
        let before = std::mem::replace(&mut self.frees_before, now);
        // A failed realloc takes back an unmatched free, so the difference can be negative.
        let [unmatched_frees, repeated_frees] = [0, 1].map(|index| now[index].wrapping_sub(before[index]));
        let demotion = self.take_change_of_demotion();
        ImageUsage { unmatched_frees, repeated_frees, demotion, ..self.totals.take_changes() }
    }

    /// Removes and returns the last changes of the sum of all stacks. `usage`: final totals of the image.
    pub(super) fn take_last_sum(&mut self, usage: &ImageUsage) -> ImageUsage {
        let change = self.take_changes();
        let mut sum = usage.total;
        self.totals.iter().for_each(|(_, totals)| sum -= totals.quantities());
        sum += change.total;
        ImageUsage {
            ended: usage.ended,
            unmatched_frees: change.unmatched_frees,
            repeated_frees: change.repeated_frees,
            demotion: change.demotion,
            merged_stacks: change.merged_stacks,
            shares_memory_of: usage.shares_memory_of,
            ..ImageUsage::of_sum(sum)
        }
    }

    /// Records the end of all live blocks from earlier epochs, because the blocks end with their image.
    pub(super) fn end_blocks(&mut self, budget: &mut Budget) {
        for block in self.blocks.iter() {
            change_epoch(&mut self.totals, block, Amount::default() - Amount::one(block.size), budget);
        }
    }
}

/// Records a change of the live amount by one block, if the block is from an earlier epoch.
#[inline]
fn change_epoch(totals: &mut ImageTotals, block: &Block, change: Amount, budget: &mut Budget) {
    if let Some(epoch) = budget.epochs.earlier(block.tick)
        && !totals.add_by_epoch(block.stack, epoch, change, &mut budget.epochs)
    {
        budget.losses.add(LossReason::StacksFull, 1);
    }
}

/// Counts the size of a new block.
#[inline]
fn count_size(totals: &mut ImageTotals, block: &Block, budget: &Budget) {
    if budget.counts_lifetimes {
        totals.count(block.stack, BlockQuantity::Size, Log2::of_size(block.size), 1);
    }
}

/// Adds `change` to the number of blocks with the same lifetime as `block`, which is freed at `tick`.
#[inline]
fn count_lifetime(totals: &mut ImageTotals, block: &Block, tick: Tick, change: u64, budget: &Budget) {
    if budget.counts_lifetimes {
        totals.count(block.stack, BlockQuantity::Lifetime, Log2::of_time(block.tick, tick), change);
    }
}
