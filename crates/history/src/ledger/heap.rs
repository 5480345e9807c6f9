//! Blocks of one process image, and their totals and accounts.

mod dropped;

use std::hint::black_box;

use memtrace_model::{
    AbsAddr, Amount, BlockQuantity, Bytes, Demotion, EventClass, ImageEnd, ImageUsage, Log2, LossReason, Part,
    Quantities, Quantity, Sample, SampleSum, StackKey, Tick, Tid, TouchedPages,
};
use rustc_hash::FxHashSet;

use super::accounts::Accounts;
use super::address_table::{AddressTable, Addressed as _, Slot};
use super::block::Block;
use super::block_ages;
use super::budget::{Budget, EXACT_BLOCK, SAMPLED_BLOCK, Settings};
use super::own_profile::{OwnProfile, Reading};
use super::samples::{LiveSample, Samples, amount_of, blocks_of};
use super::spreads::StackSpreads;
use super::stack_totals::{ImageTotals, StackTotals};
use super::tentative_free::{TentativeFree, TentativeFrees};
use super::thinning::{Corrections, Thinning};

/// Blocks of one process image.
#[derive(Debug, Default)]
pub(super) struct Heap {
    blocks: AddressTable<Block>,
    /// Samples of the sampled ones of `blocks`.
    samples: Samples,
    thinning: Thinning,
    /// Thinning of the process when it was patched; `None` before. All later levels use the same salt.
    patched: Option<Thinning>,
    /// Minimum size of followed blocks when the process was patched. It applies to exact blocks only.
    exact_min_size: Bytes,
    own_profile: OwnProfile,
    tentative_frees: TentativeFrees,
    pub(super) totals: ImageTotals,
    unmatched_frees: u64,
    repeated_frees: u64,
    unmatched_samples: u64,
    /// Numbers at the last delta: unmatched frees, repeated frees, and unmatched frees that samplers reported.
    frees_before: [u64; 3],
    demotion: Demotion,
    /// Demotion at the last delta.
    demotion_before: Demotion,
    pub(super) accounts: Accounts,
}

/// Maximum number of chunks. [`Heap::usage`] builds the map of stacks chunk by chunk.
const CHUNKS: usize = 8;

/// Minimum number of stacks in a chunk, because adding a chunk copies all earlier chunks. This number of stacks
/// takes five mebibytes.
const MIN_CHUNK: usize = 1 << 14;

/// A new block.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewBlock<'a> {
    pub(super) address: AbsAddr,
    pub(super) size: Bytes,
    /// The sample, if the block is sampled.
    pub(super) sample: Option<&'a Sample>,
    /// Level of thinning at the sample.
    pub(super) level: u8,
    /// Thread that has allocated the block.
    pub(super) tid: Tid,
    pub(super) tick: Tick,
}

/// A block that was removed.
#[derive(Clone, Copy, Debug)]
struct RemovedBlock {
    block: Block,
    sample: Option<LiveSample>,
    is_temporary: bool,
}

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
    pub(super) fn alloc(&mut self, new: NewBlock<'_>, key: StackKey, budget: &mut Budget) {
        let NewBlock { address, size, sample, level, tid, tick } = new;
        match self.blocks.slot(Block::key(address)) {
            Slot::Occupied(mut entry) => {
                // The free of the old block was lost.
                let lost = *entry.get();
                let lost_sample = self.samples.remove(&lost).map(|live| live.sample);
                let lost_amount = amount_of(&lost, lost_sample.as_ref());
                budget.losses.add(LossReason::FreeUnseen, 1);
                self.accounts.free(&self.totals, &lost, lost_amount, None, tick, budget);
                self.totals.free(lost.stack, lost_amount);
                if let Some(sample) = &lost_sample {
                    self.totals.subtract_live_spread(lost.stack, sample.spread());
                }
                // The time of the lost free is not known. It was at this tick or earlier.
                count_lifetime(&mut self.totals, &lost, tick, lost_amount.count, budget);
                budget.remove_live(blocks_of(lost_sample.as_ref()), lost_amount);
                let stack = self.totals.index_or_insert(key, budget);
                let block = Block::new(address, tid, size, stack, tick);
                *entry.get_mut() = block;
                change_epoch(&mut self.totals, &lost, Amount::default() - lost_amount, budget);
                self.count_new(&block, sample, level, budget);
            }
            // A sample of a patched process stands for dropped blocks: it stays unless the minimum size was raised later.
            Slot::Vacant(_)
                if size < self.demotion.min_size
                    && (sample.is_none() || self.demotion.min_size > self.exact_min_size) =>
            {
                self.alloc_dropped(new, key, budget);
            }
            Slot::Vacant(entry) => {
                if !budget.has_room(blocks_of(sample)) {
                    budget.losses.add(LossReason::LedgerFull, 1);
                    return;
                }
                let stack = self.totals.index_or_insert(key, budget);
                let block = Block::new(address, tid, size, stack, tick);
                entry.insert(block);
                self.count_new(&block, sample, level, budget);
            }
        }
    }

    /// Counts a new block that is sampled. The samples of the process can have been thinned before or after the sample.
    pub(super) fn alloc_sampled(&mut self, new: NewBlock<'_>, key: StackKey, budget: &mut Budget) {
        let (address, level) = (Block::key(new.address), new.level);
        // The process thins its samples from now on. If only the command to thin had an effect, blocks that are left out and
        // freed before it would be missing, and the remaining blocks would not stand for them.
        if let Some(patched) = self.patched.filter(|_| level > self.thinning.level) {
            self.thin(patched.at(level), budget);
        }
        let old = self.blocks.get(address).and_then(|block| self.samples.find(block));
        if old.is_some_and(|old| old.level < level) {
            // The process has probably left out the old block, and then reports no free. Otherwise, its free was lost.
            self.thin_blocks([address], |_, _| None, budget);
        }
        self.alloc(new, key, budget);
        if level < self.thinning.level {
            self.thin_to_level([address], budget);
        }
    }

    /// Thins the samples to a level that the process has reached. At the level 0, the process was patched just now.
    pub(super) fn thin(&mut self, thinning: Thinning, budget: &mut Budget) {
        if thinning.level == 0 {
            self.exact_min_size = self.demotion.min_size;
            self.patched = Some(thinning);
        }
        if thinning.level > self.thinning.level {
            self.thinning = thinning;
            self.thin_to_level(self.samples.below(thinning.level), budget);
        }
    }

    /// Thins the samples of blocks to the level of the process. `addresses`: keys of the blocks, whose samples have lower levels.
    fn thin_to_level(&mut self, addresses: impl IntoIterator<Item = AbsAddr>, budget: &mut Budget) {
        let thinning = self.thinning;
        self.thin_blocks(addresses, |block, live| thinning.of_sample(block, live), budget);
    }

    /// Replaces the samples of blocks. `thinned` returns the new sample; `None` if the block is left out. A block that is left out
    /// counts as never allocated, because the samples of other blocks stand for it.
    fn thin_blocks(
        &mut self,
        addresses: impl IntoIterator<Item = AbsAddr>,
        thinned: impl Fn(&Block, &LiveSample) -> Option<LiveSample>,
        budget: &mut Budget,
    ) {
        let mut corrections = Corrections::default();
        for address in addresses {
            let Some(block) = self.blocks.get(address).copied() else { continue };
            let Some(before) = self.samples.remove(&block) else { continue };
            let now = thinned(&block, &before);
            let sum = now.map_or_else(SampleSum::default, |now| SampleSum::from(now.sample));
            let change = sum - SampleSum::from(before.sample);
            self.totals.add_samples(block.stack, change, budget);
            count_size(&mut self.totals, &block, change.amount, budget);
            change_epoch(&mut self.totals, &block, change.amount, budget);
            corrections.add(&block, change.amount, self.accounts.of_stack(&self.totals, block.stack, budget));
            match now {
                Some(now) => self.samples.insert(now),
                None => {
                    self.blocks.remove(address);
                    budget.blocks -= SAMPLED_BLOCK;
                }
            }
        }
        corrections.apply(&mut self.totals, &mut self.accounts, budget);
    }

    /// Counts a new block of the table.
    #[inline]
    fn count_new(&mut self, block: &Block, sample: Option<&Sample>, level: u8, budget: &mut Budget) {
        let amount = amount_of(block, sample);
        self.totals.alloc(block.stack, amount);
        if let Some(sample) = sample {
            self.totals.add_spread(block.stack, sample.spread(), budget);
            self.samples.insert(LiveSample::new(block, *sample, level));
        }
        self.accounts.alloc(&self.totals, block, amount, budget);
        count_size(&mut self.totals, block, amount, budget);
        change_epoch(&mut self.totals, block, amount, budget);
        budget.add_live(blocks_of(sample), amount, block.tick);
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

    /// Frees a sampled block. Samplers report frees of blocks from before the trace, too.
    pub(super) fn free_sampled(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) {
        let block = self.blocks.get(Block::key(address));
        let is_sampled = block.is_some_and(|block| self.samples.get(block).is_some());
        if is_sampled {
            self.remove_live(address, call, budget);
            return;
        }
        // A process with thinned samples can still have blocks in its table that the ledger has left out. If each free has two
        // reports, the probe has reported this free too. In both cases, the free is not counted here.
        if self.thinning.is_active() || self.has_two_reports() {
            return;
        }
        if self.demotion.is_none() {
            self.unmatched_samples += 1;
        } else {
            self.demotion.frees += 1;
        }
    }

    /// Applies a reading of the heap profile that the target keeps. Returns false if the first reading is missing.
    pub(super) fn read_profile(&mut self, reading: Reading<'_>, budget: &mut Budget) -> bool {
        let Self { own_profile, totals, accounts, .. } = self;
        own_profile.apply(reading, totals, accounts, budget)
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
        let spread = self.samples.get(&old).map(Sample::spread);
        let amount = self.samples.amount(&old);
        let StackKey { stack, part: old_part } = self.totals.key(old.stack);
        let part = old_part.allocator().map_or(part, |id| part.with_allocator(id));
        self.accounts.free(&self.totals, &old, amount, None, tick, budget);
        self.totals.free(old.stack, amount);
        count_lifetime(&mut self.totals, &old, tick, amount.count, budget);
        change_epoch(&mut self.totals, &old, Amount::default() - amount, budget);
        if let Some(spread) = spread {
            self.totals.subtract_live_spread(old.stack, spread);
        }
        let stack = self.totals.index_or_insert(StackKey { stack, part }, budget);
        let block = Block::new(address, tid, old.size, stack, old.tick);
        *entry.get_mut() = block;
        self.totals.alloc(stack, amount);
        if let Some(spread) = spread {
            self.totals.add_spread(stack, spread, budget);
        }
        self.accounts.alloc(&self.totals, &Block::new(address, tid, old.size, stack, tick), amount, budget);
        count_size(&mut self.totals, &block, amount, budget);
        change_epoch(&mut self.totals, &block, amount, budget);
    }

    pub(super) fn free_tentatively(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) {
        let FreeCall { tid, tick, .. } = call;
        let known = self.blocks.get(Block::key(address)).copied();
        if known.is_none() && self.has_two_reports() && self.tentative_frees.repeat(tid, address) {
            return;
        }
        let marks = known.and_then(|block| self.accounts.low_marks(&self.totals, &block, budget));
        let removed = self.remove_live(address, call, budget);
        let (block, is_temporary) = removed.map(|removed| (removed.block, removed.is_temporary)).unzip();
        let is_temporary = is_temporary.unwrap_or(false);
        let sample = removed.and_then(|removed| removed.sample).map(Box::new);
        // With thinned samples, a missing block may have been left out, so it does not count as unknown.
        let is_unknown = block.is_none() && !self.thinning.is_active();
        let unknown = is_unknown.then(|| self.count_unknown_free(tid, tick, budget));
        let free = TentativeFree { address, block, sample, tick, is_temporary, marks, unknown, is_repeated: false };
        self.tentative_frees.insert(tid, free);
    }

    /// Returns true for a process that was demoted and then patched. The probes of its allocator stay, because other processes
    /// need them. So both the probes and the stub of the process report the free of a sampled block, in either order.
    fn has_two_reports(&self) -> bool {
        self.patched.is_some() && self.exact_min_size.0 > 0
    }

    pub(super) fn undo_free(&mut self, tid: Tid, address: AbsAddr, now: Tick, budget: &mut Budget) {
        let Some(undone) = self.tentative_frees.remove(tid, address) else { return };
        let Slot::Vacant(entry) = self.blocks.slot(Block::key(address)) else { return };
        match undone.block {
            Some(block) => {
                entry.insert(block);
                let live = undone.sample.as_deref();
                let sample = live.map(|live| &live.sample);
                let amount = amount_of(&block, sample);
                self.totals.undo_free(block.stack, amount);
                if undone.is_temporary {
                    self.totals.add_temporary(block.stack, Amount::default() - amount);
                }
                if let Some(live) = live {
                    self.totals.add_live_spread(block.stack, live.sample.spread());
                    self.samples.insert(*live);
                }
                count_lifetime(&mut self.totals, &block, undone.tick, amount.count.wrapping_neg(), budget);
                change_epoch(&mut self.totals, &block, amount, budget);
                self.accounts.undo_free(&self.totals, &block, amount, tid, now, budget);
                budget.add_live(blocks_of(sample), amount, now);
                if let Some(marks) = &undone.marks {
                    self.accounts.restore_low_marks(marks, amount, budget);
                }
                // The samples can have been thinned since the free.
                if live.is_some_and(|live| live.level < self.thinning.level) {
                    self.thin_to_level([block.address()], budget);
                }
            }
            None => undone.unknown.into_iter().for_each(|free| self.undo_unknown_free(free, now)),
        }
    }

    /// Returns the live amount.
    pub(super) const fn live(&self) -> Amount {
        self.totals.live()
    }

    /// Returns the number of blocks that all live blocks count as in the limit of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64 + self.samples.len() as u64 * (SAMPLED_BLOCK - EXACT_BLOCK)
    }

    /// Returns the usage at the end of the image or, while the image runs, at `now`. Only blocks that are at least
    /// as old as `settings.older` count as live or held at exit.
    pub(super) fn usage(&self, ended: Option<ImageEnd>, now: Tick, settings: &Settings) -> ImageUsage {
        let &Settings { older, track_peak, lifetimes, .. } = settings;
        let mut usage = ImageUsage {
            ended,
            unmatched_frees: self.unmatched_frees,
            repeated_frees: self.repeated_frees,
            unmatched_samples: self.unmatched_samples,
            demotion: self.effective_demotion(),
            merged_stacks: self.totals.merged(),
            peak: track_peak.then_some(self.totals.peak()),
            ..ImageUsage::default()
        };
        let older = older.filter(|_| ended != Some(ImageEnd::Exec));
        let live_of_age =
            older.map(|older| block_ages::live_of_age(&self.blocks, &self.samples, self.totals.len(), now, older));
        let mut of_stack = |index: usize, totals: &StackTotals| {
            let spreads = self.totals.spreads(index as u32);
            let of_age = live_of_age.as_ref().map(|of_age| of_age.of_stack(index));
            let (live, live_spread) = of_age.unwrap_or((totals.live, spreads.live));
            let left_out = totals.live - live;
            let at_peak = if track_peak { self.totals.at_peak(totals) } else { Bytes(0) };
            let amounts = Quantities::of_blocks([live, totals.alloc, totals.temporary])
                .with_amount(Quantity::LeftOutBytes, left_out)
                .with(Quantity::AtPeakBytes, at_peak.0);
            let mut stack_usage = StackSpreads { live: live_spread, ..spreads }.in_quantities(amounts);
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
            let chunk = chunk.iter().map(|&(index, totals)| of_stack(index, totals));
            // All samples of a stack can be left out.
            let mut chunk = chunk.filter(|(_, stack_usage)| !stack_usage.is_zero()).collect();
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
            let amount = self.samples.amount(block).bytes;
            if let Some(sum) = sums.get_mut(block.stack as usize) {
                sum.0.0 = sum.0.0.wrapping_add(scaled(hot, amount, block.size).0);
                sum.1.0 = sum.1.0.wrapping_add(scaled(cold, amount, block.size).0);
            }
        }
        for (index, totals) in self.totals.iter() {
            let (hot, cold) = sums[index];
            let touches = Quantities::ZERO.with(Quantity::HotBytes, hot.0).with(Quantity::ColdBytes, cold.0);
            if !touches.is_zero() {
                usage.total += touches;
                *usage.by_stack.entry(totals.key).or_default() += touches;
            }
        }
    }

    /// Adds the ages of all live blocks at `now`.
    fn add_ages(&self, usage: &mut ImageUsage, now: Tick) {
        let ages = block_ages::histograms(&self.blocks, &self.samples, self.totals.len(), now);
        for (index, totals) in self.totals.iter() {
            if !ages[index].is_empty() {
                usage.histograms.entry(totals.key).or_default().add(&ages[index]);
            }
        }
    }

    /// Removes a live block, and returns it; `None` if the block is unknown.
    #[inline]
    fn remove_live(&mut self, address: AbsAddr, call: FreeCall, budget: &mut Budget) -> Option<RemovedBlock> {
        let FreeCall { tid, is_last, tick } = call;
        let block = self.blocks.remove(Block::key(address))?;
        let live = self.samples.remove(&block);
        let sample = live.as_ref().map(|live| &live.sample);
        let amount = amount_of(&block, sample);
        self.totals.free(block.stack, amount);
        // Another thread can have passed a block at the same address to this thread, so `is_last` is not sufficient.
        let is_temporary = is_last && block.may_be_of(tid);
        if is_temporary {
            self.totals.add_temporary(block.stack, amount);
        }
        if let Some(sample) = sample {
            self.totals.subtract_live_spread(block.stack, sample.spread());
        }
        count_lifetime(&mut self.totals, &block, tick, amount.count, budget);
        change_epoch(&mut self.totals, &block, Amount::default() - amount, budget);
        self.accounts.free(&self.totals, &block, amount, Some(tid), tick, budget);
        budget.remove_live(blocks_of(sample), amount);
        Some(RemovedBlock { block, sample: live, is_temporary })
    }

    /// Records the end of a thread.
    pub(super) fn end_thread(&mut self, tid: Tid, tick: Tick) {
        self.tentative_frees.forget(tid);
        self.accounts.end_thread(tid, tick);
    }

    /// Merges the accounts of ended threads, except the threads that ended last, into one account. Merges the stacks of
    /// these threads that have no live blocks. Returns the merged threads, and the parts that have no account any more.
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
        let now = [self.unmatched_frees, self.repeated_frees, self.unmatched_samples];
        let before = std::mem::replace(&mut self.frees_before, now);
        // A failed realloc takes back an unmatched free, so the difference can be negative.
        let [unmatched_frees, repeated_frees, unmatched_samples] =
            [0, 1, 2].map(|index| now[index].wrapping_sub(before[index]));
        let demotion = self.take_change_of_demotion();
        ImageUsage { unmatched_frees, repeated_frees, unmatched_samples, demotion, ..self.totals.take_changes() }
    }

    /// Removes and returns the last changes of the sum of all stacks. `usage`: final totals of the image.
    pub(super) fn take_last_sum(&mut self, usage: &ImageUsage) -> ImageUsage {
        let change = self.take_changes();
        let mut sum = usage.total;
        sum -= self.totals.sum();
        sum += change.total;
        ImageUsage {
            ended: usage.ended,
            unmatched_frees: change.unmatched_frees,
            repeated_frees: change.repeated_frees,
            unmatched_samples: change.unmatched_samples,
            demotion: change.demotion,
            merged_stacks: change.merged_stacks,
            shares_memory_of: usage.shares_memory_of,
            ..ImageUsage::of_sum(sum)
        }
    }

    /// Records the end of all live blocks from earlier epochs, because the blocks end with their image.
    pub(super) fn end_blocks(&mut self, budget: &mut Budget) {
        for block in self.blocks.iter() {
            change_epoch(&mut self.totals, block, Amount::default() - self.samples.amount(block), budget);
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

/// Counts the size of a new block. `amount`: bytes and blocks that it stands for.
#[inline]
fn count_size(totals: &mut ImageTotals, block: &Block, amount: Amount, budget: &Budget) {
    if budget.counts_lifetimes {
        totals.count(block.stack, BlockQuantity::Size, Log2::of_size(block.size), amount.count);
    }
}

/// Returns the bytes that a part of a block stands for. `size`: size of the block. `amount`: bytes that it stands for.
pub(super) fn scaled(part: Bytes, amount: Bytes, size: Bytes) -> Bytes {
    if amount == size {
        return part;
    }
    let scaled = u128::from(part.0) * u128::from(amount.0) / u128::from(size.0.max(1));
    // The part is at most the size, so the result is at most the amount.
    Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Adds `change` to the number of blocks with the same lifetime as `block`, which is freed at `tick`.
#[inline]
fn count_lifetime(totals: &mut ImageTotals, block: &Block, tick: Tick, change: u64, budget: &Budget) {
    if budget.counts_lifetimes {
        totals.count(block.stack, BlockQuantity::Lifetime, Log2::of_time(block.tick, tick), change);
    }
}
