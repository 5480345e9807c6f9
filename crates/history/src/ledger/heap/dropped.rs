//! Blocks that the heap of a demoted process does not follow.

use memtrace_model::{Amount, Bytes, Demotion, StackId, StackKey, Tick, Tid};

use super::{Heap, NewBlock, change_epoch, count_size};
use crate::ledger::block::{Block, SIZE_CLASSES, size_class};
use crate::ledger::budget::Budget;
use crate::ledger::samples::{amount_of, blocks_of};
use crate::ledger::tentative_free::UnknownFree;

impl Heap {
    /// Returns the number of live blocks in each class of sizes, as they count towards the limit. A failed realloc can
    /// leave blocks below the minimum size. They count in the lowest class that is followed.
    pub(in crate::ledger) fn size_classes(&self) -> [u64; SIZE_CLASSES] {
        let mut counts = [0; SIZE_CLASSES];
        let lowest = size_class(self.demotion.min_size);
        for block in self.blocks.iter() {
            counts[size_class(block.size).max(lowest)] += blocks_of(self.samples.get(block));
        }
        counts
    }

    /// Drops all live blocks below `min_size`, and all such blocks that are allocated later.
    pub(in crate::ledger) fn demote(&mut self, min_size: Bytes, at: Tick, budget: &mut Budget) {
        if min_size <= self.demotion.min_size {
            return;
        }
        let Self { blocks, samples, totals, accounts, demotion, .. } = self;
        demotion.min_size = min_size;
        demotion.at = if demotion.at == Tick(0) { at } else { demotion.at };
        blocks.remove_if(
            |block| block.size < min_size,
            |block| {
                let sample = samples.remove(&block).map(|live| live.sample);
                let amount = amount_of(&block, sample.as_ref());
                accounts.free(totals, &block, amount, None, at, budget);
                totals.free(block.stack, amount);
                if let Some(sample) = &sample {
                    totals.subtract_live_spread(block.stack, sample.spread());
                }
                change_epoch(totals, &block, Amount::default() - amount, budget);
                budget.remove_live(blocks_of(sample.as_ref()), amount);
                demotion.dropped += amount;
            },
        );
    }

    /// Counts a new block that is not followed.
    #[cold]
    pub(super) fn alloc_dropped(&mut self, new: NewBlock<'_>, key: StackKey, budget: &mut Budget) {
        let NewBlock { address, size, sample, tid, tick, .. } = new;
        let stack = self.totals.index_or_insert(key, budget);
        let block = Block::new(address, tid, size, stack, tick);
        let amount = amount_of(&block, sample);
        self.totals.add_dropped(stack, amount);
        if let Some(sample) = sample {
            self.totals.add_dropped_spread(stack, sample.spread(), budget);
        }
        self.accounts.alloc(&self.totals, &block, amount, budget);
        self.accounts.free(&self.totals, &block, amount, None, tick, budget);
        count_size(&mut self.totals, &block, amount, budget);
        self.demotion.dropped += amount;
    }

    /// Counts blocks that the BPF programs have dropped. Their stacks are not known.
    pub(in crate::ledger) fn add_dropped(&mut self, blocks: Amount, budget: &mut Budget) {
        let stack = self.totals.index_or_insert(StackKey::from(StackId::OTHER), budget);
        self.totals.add_dropped(stack, blocks);
        self.demotion.dropped += blocks;
    }

    /// Counts the free of an unknown block.
    pub(super) fn count_unknown_free(&mut self, tid: Tid, tick: Tick, budget: &mut Budget) -> UnknownFree {
        if !self.demotion.is_none() {
            self.demotion.frees += 1;
            return UnknownFree::OfDropped;
        }
        self.unmatched_frees += 1;
        UnknownFree::Unmatched(self.accounts.add_unmatched(tid, tick, budget))
    }

    /// Takes back the free of an unknown block.
    pub(super) fn undo_unknown_free(&mut self, free: UnknownFree, now: Tick) {
        match free {
            // The process may have been demoted since.
            UnknownFree::Unmatched(account) => {
                self.unmatched_frees -= 1;
                account.into_iter().for_each(|account| self.accounts.undo_unmatched(account, now));
            }
            UnknownFree::OfDropped => self.demotion.frees -= 1,
        }
    }

    /// Removes and returns the change of the demotion since the last delta.
    pub(super) fn take_change_of_demotion(&mut self) -> Demotion {
        let demotion = self.effective_demotion();
        if demotion.is_none() {
            return demotion;
        }
        let before = std::mem::replace(&mut self.demotion_before, demotion);
        demotion.since(&before)
    }

    /// Returns the demotion. It is empty if the heap has had no blocks and no frees, because then nothing was dropped.
    pub(super) fn effective_demotion(&self) -> Demotion {
        let has_events = self.demotion.frees != 0 || self.totals.iter().next().is_some();
        if has_events { self.demotion } else { Demotion::default() }
    }
}
