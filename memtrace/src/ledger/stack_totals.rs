//! Totals of one image by stack.

use rustc_hash::FxHashMap;

use super::budget::Budget;
use crate::model::{Amount, Bytes, ImageEnd, ImageUsage, Partition, StackId, StackKey, StackUsage, Usage};

/// Totals of one stack. Freed is allocated minus live.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackTotals {
    pub(super) key: StackKey,
    pub(super) live: Amount,
    pub(super) alloc: Amount,
    /// Live bytes at the image's high-water mark number `seen_peak`.
    at_peak: Bytes,
    /// Number of high-water marks of the image when `at_peak` was recorded.
    seen_peak: u64,
}

/// Totals of one image by stack. Each stack has an index.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageTotals {
    by_stack: FxHashMap<StackId, u32>,
    /// Separate, so that the usual lookup only compares stack ids.
    by_partition: FxHashMap<StackKey, u32>,
    stacks: Vec<StackTotals>,
    /// Amounts inherited on fork, by index; empty if the process was not forked.
    inherited: Vec<Amount>,
    live: Amount,
    peak: Bytes,
    /// Number of high-water marks so far.
    peaks: u64,
}

impl ImageTotals {
    /// Returns the index of `key`, which is added if needed. If the budget is exceeded, returns the index of
    /// [`StackId::FAILED`].
    #[inline]
    pub(super) fn index_or_insert(&mut self, key: StackKey, budget: &mut Budget) -> u32 {
        self.index(key).unwrap_or_else(|| self.insert_within(key, budget))
    }

    #[cold]
    fn insert_within(&mut self, key: StackKey, budget: &mut Budget) -> u32 {
        let admitted = budget.admit(key);
        let known = if admitted == key { None } else { self.index(admitted) };
        known.unwrap_or_else(|| self.insert(admitted))
    }

    #[inline]
    fn index(&self, key: StackKey) -> Option<u32> {
        match key.part {
            Partition::Whole => self.by_stack.get(&key.stack).copied(),
            Partition::Thread(_) | Partition::Allocator(_) | Partition::Memory(_) => {
                self.by_partition.get(&key).copied()
            }
        }
    }

    /// Adds `key`, which must be new.
    fn insert(&mut self, key: StackKey) -> u32 {
        // The number of stacks is limited by a u32.
        let index = self.stacks.len() as u32;
        let nothing = Amount::default();
        self.stacks.push(StackTotals { key, live: nothing, alloc: nothing, at_peak: Bytes(0), seen_peak: self.peaks });
        match key.part {
            Partition::Whole => self.by_stack.insert(key.stack, index),
            Partition::Thread(_) | Partition::Allocator(_) | Partition::Memory(_) => {
                self.by_partition.insert(key, index)
            }
        };
        index
    }

    #[inline]
    pub(super) fn alloc(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| {
            totals.live += amount;
            totals.alloc += amount;
        });
        self.live += amount;
        self.update_peak();
    }

    #[inline]
    pub(super) fn free(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.live -= amount);
        self.live -= amount;
    }

    pub(super) fn undo_free(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.live += amount);
        self.live += amount;
        self.update_peak();
    }

    /// Totals of a forked child: the live amounts, which count as allocated.
    pub(super) fn fork(&self) -> Self {
        let mut child = self.clone();
        for totals in &mut child.stacks {
            totals.alloc = totals.live;
        }
        child.inherited = child.stacks.iter().map(|totals| totals.alloc).collect();
        child
    }

    pub(super) fn key(&self, index: u32) -> StackKey {
        self.stacks.get(index as usize).map_or(StackKey::from(StackId::FAILED), |totals| totals.key)
    }

    /// Usage of pages or mappings, none of which outlives its image. Inherited amounts of an ended image are left out: most
    /// forked children exec at once, and would repeat their parent's totals.
    pub(super) fn memory_usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, ..ImageUsage::default() };
        for (index, totals) in self.stacks.iter().enumerate() {
            let (live, alloc) = match ended {
                None => (totals.live, totals.alloc),
                Some(_) => (Amount::default(), totals.alloc - self.inherited(index)),
            };
            let stack_usage = Usage { live, alloc, free: alloc - live, ..Usage::default() };
            if ended.is_some() && stack_usage.is_zero() {
                continue;
            }
            usage.total += stack_usage;
            usage.by_stack.insert(totals.key, StackUsage { usage: stack_usage, ..StackUsage::default() });
        }
        usage
    }

    /// Amount that the stack inherited on fork.
    pub(super) fn inherited(&self, index: usize) -> Amount {
        self.inherited.get(index).copied().unwrap_or_default()
    }

    pub(super) const fn live(&self) -> Amount {
        self.live
    }

    pub(super) const fn peak(&self) -> Bytes {
        self.peak
    }

    pub(super) const fn len(&self) -> usize {
        self.stacks.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StackTotals> {
        self.stacks.iter()
    }

    /// Live bytes of the stack at the image's high-water mark.
    pub(super) const fn at_peak(&self, totals: &StackTotals) -> Bytes {
        if totals.seen_peak < self.peaks { totals.live.bytes } else { totals.at_peak }
    }

    /// Changes the totals of a stack. The first change after a high-water mark records the live bytes before it, so a
    /// high-water mark costs nothing for stacks that do not change.
    #[inline]
    fn change(&mut self, index: u32, change: impl FnOnce(&mut StackTotals)) {
        if let Some(totals) = self.stacks.get_mut(index as usize) {
            if totals.seen_peak < self.peaks {
                totals.at_peak = totals.live.bytes;
                totals.seen_peak = self.peaks;
            }
            change(totals);
        }
    }

    #[inline]
    fn update_peak(&mut self) {
        if self.live.bytes > self.peak {
            self.peak = self.live.bytes;
            self.peaks += 1;
        }
    }
}
