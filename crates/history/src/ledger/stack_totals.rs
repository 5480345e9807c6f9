//! Totals of one image by stack.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use memtrace_model::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Epoch, ImageEnd, ImageUsage, Log2, LossReason, Part, PartKeys,
    Quantities, StackId, StackKey, Tid,
};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, is_limited, merged_key};
use super::changed_stacks::ChangedStacks;
use super::deferred_stacks::DeferredStacks;
use super::epochs::Epochs;

/// Hash of a key. An id of a stack is a hash itself.
#[inline]
fn hash_of(key: StackKey) -> u64 {
    match key.part.keys() {
        PartKeys::NONE => key.stack.0,
        _ => FxBuildHasher.hash_one(key),
    }
}

/// Totals of one stack. Freed is allocated minus live.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackTotals {
    pub(super) key: StackKey,
    pub(super) live: Amount,
    pub(super) alloc: Amount,
    /// Freed by the allocating thread before its next allocation.
    pub(super) temporary: Amount,
    /// Live bytes at the image's high-water mark number `seen_peak`.
    at_peak: Bytes,
    /// Number of high-water marks of the image when `at_peak` was recorded.
    seen_peak: u64,
}

impl StackTotals {
    /// Returns true for an index without a stack: totals begin with an amount.
    fn is_vacant(&self) -> bool {
        self.alloc == Amount::default()
    }

    /// Reads its first, a middle and its last field, since it is in two or three cache lines. Returns a value that depends on
    /// them.
    pub(super) const fn load(&self) -> u64 {
        self.key.stack.0 ^ self.alloc.count ^ self.seen_peak
    }

    /// Live, allocated and temporary amounts.
    const fn amounts(&self) -> [Amount; 3] {
        [self.live, self.alloc, self.temporary]
    }

    /// All numbers while the image runs.
    pub(super) const fn quantities(&self) -> Quantities {
        Quantities::of_blocks(self.amounts())
    }
}

/// Totals of one image by stack. Each stack has an index.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageTotals {
    stacks: Vec<StackTotals>,
    /// Indices by key. The keys are in `stacks`: an event reads the totals of its stack anyway, and a table of indices alone takes
    /// a third of the cache lines.
    by_key: HashTable<u32>,
    /// Sizes and lifetimes of blocks, by index; stacks after the end have none. Empty if they are not counted.
    histograms: Vec<BlockHistograms>,
    /// Indices without a stack.
    vacant: Vec<u32>,
    /// Number of stacks that count towards the limit.
    limited: u32,
    /// Number of times that a stack was merged.
    merged: u64,
    /// Number of stacks of ended threads that got a key of their own.
    ended_threads: u32,
    /// Amounts inherited on fork, by index; empty if the process was not forked.
    inherited: Vec<Amount>,
    live: Amount,
    peak: Bytes,
    /// Number of high-water marks so far.
    peaks: u64,
    /// Changes since the last delta; `None` without deltas, or without stacks.
    changes: Option<Box<ChangedStacks>>,
    /// `None` if deltas have the stacks.
    deferred: Option<Box<DeferredStacks>>,
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
        if budget.tracks_changes && self.deferred.is_none() {
            self.changes.get_or_insert_default();
        }
        let admitted = budget.admit(key);
        let known = if admitted == key { None } else { self.index(admitted) };
        known.unwrap_or_else(|| self.insert(admitted))
    }

    #[inline]
    fn index(&self, key: StackKey) -> Option<u32> {
        self.by_key.find(hash_of(key), |&index| self.stacks[index as usize].key == key).copied()
    }

    /// Returns the place of an index that is usually the one of `key`. Reads only the tags of the entries.
    #[inline]
    pub(super) fn likely_index(&self, key: StackKey) -> Option<&u32> {
        self.by_key.find(hash_of(key), |_| true)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&StackTotals> {
        self.stacks.get(index as usize)
    }

    /// Adds `key`, which must be new.
    fn insert(&mut self, key: StackKey) -> u32 {
        let nothing = Amount::default();
        let new = StackTotals {
            key,
            live: nothing,
            alloc: nothing,
            temporary: nothing,
            at_peak: Bytes(0),
            seen_peak: self.peaks,
        };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.stacks[index as usize] = new;
                index
            }
            None => {
                self.stacks.push(new);
                // The number of stacks is limited by a u32.
                self.stacks.len() as u32 - 1
            }
        };
        self.add_key(index, key);
        self.limited += u32::from(is_limited(key));
        index
    }

    /// Removes the stack at `index`, and returns its totals and histograms.
    fn vacate(&mut self, index: u32) -> Option<(StackTotals, BlockHistograms)> {
        let nothing = StackTotals {
            key: StackKey::from(StackId::FAILED),
            live: Amount::default(),
            alloc: Amount::default(),
            temporary: Amount::default(),
            at_peak: Bytes(0),
            seen_peak: 0,
        };
        self.forget_key(index, self.get(index)?.key);
        let removed = std::mem::replace(self.stacks.get_mut(index as usize)?, nothing);
        let histograms = self.histograms.get_mut(index as usize).map(std::mem::take).unwrap_or_default();
        if let Some(changes) = &mut self.changes {
            changes.remove(index, removed.key, removed.amounts(), &histograms);
        }
        self.vacant.push(index);
        self.limited -= u32::from(is_limited(removed.key));
        Some((removed, histograms))
    }

    /// Iterates over the limited stacks without live amounts. `is_pinned` returns true for an index to which a tentative free
    /// refers.
    pub(super) fn idle(&self, is_pinned: impl Fn(u32) -> bool) -> impl Iterator<Item = (StackKey, Quantities)> {
        let is_idle = move |(index, totals): &(u32, &StackTotals)| {
            let is_live = totals.live != Amount::default() || totals.is_vacant();
            !is_live && is_limited(totals.key) && !is_pinned(*index)
        };
        (0..).zip(&self.stacks).filter(is_idle).map(|(_, totals)| (totals.key, totals.quantities()))
    }

    /// Merges the stack `key`, which must be idle, into the sum of merged stacks. Returns its index and that of the sum.
    pub(super) fn merge_stack(&mut self, key: StackKey) -> Option<[u32; 2]> {
        let index = self.index(key)?;
        let other = merged_key(key);
        let other = self.index(other).unwrap_or_else(|| self.insert(other));
        let at_peak = self.get(index).map_or(Bytes(0), |totals| self.at_peak(totals));
        let (removed, histograms) = self.vacate(index)?;
        self.change(other, |totals| {
            totals.alloc += removed.alloc;
            totals.temporary += removed.temporary;
            totals.at_peak.0 += at_peak.0;
        });
        if !histograms.is_empty() {
            self.histograms_at(other).add(&histograms);
        }
        if let Some(inherited) = self.inherited.get_mut(index as usize).map(std::mem::take) {
            let size = self.inherited.len().max(other as usize + 1);
            self.inherited.resize(size, Amount::default());
            self.inherited[other as usize] += inherited;
        }
        self.merged += 1;
        Some([index, other])
    }

    /// Gives stacks of ended threads keys that no other thread has, since another one can have the ID of the thread later.
    /// Merges stacks of ended threads without live amounts, as [`Self::merge_stack`] does. Returns the number of merged ones.
    /// `is_pinned` is that of [`Self::idle`].
    pub(super) fn end_threads(&mut self, is_ended: impl Fn(Tid) -> bool, is_pinned: impl Fn(u32) -> bool) -> u32 {
        let is_ended = |tid: Tid| tid.is_of_ended() || is_ended(tid);
        let is_of_ended = |totals: &StackTotals| !totals.is_vacant() && totals.key.part.thread().is_some_and(is_ended);
        let of_ended = (0..).zip(&self.stacks).filter(|(_, totals)| is_of_ended(totals));
        let of_ended: Vec<_> = of_ended.map(|(index, totals)| (index, totals.key, totals.live)).collect();
        let mut merged = 0;
        for (index, key, live) in of_ended {
            if live == Amount::default() && is_limited(key) && !is_pinned(index) {
                merged += u32::from(self.merge_stack(key).is_some());
            } else if key.part.thread().is_some_and(|tid| !tid.is_of_ended()) {
                self.end_thread(index, key);
            }
        }
        merged
    }

    /// Gives a stack of an ended thread another key. Deltas refer to the key, so that it stays if there are some.
    fn end_thread(&mut self, index: u32, key: StackKey) {
        if self.changes.is_some() || self.deferred.is_some() {
            return;
        }
        self.ended_threads = self.ended_threads.wrapping_add(1);
        let ended = StackKey { part: key.part.with_thread(Tid::ended(self.ended_threads)), ..key };
        self.forget_key(index, key);
        if let Some(totals) = self.stacks.get_mut(index as usize) {
            totals.key = ended;
            self.add_key(index, ended);
        }
    }

    /// Adds the index of `key`, which the totals there have, to the table.
    fn add_key(&mut self, index: u32, key: StackKey) {
        self.by_key.insert_unique(hash_of(key), index, |&other| hash_of(self.stacks[other as usize].key));
    }

    /// Removes the index of `key` from the table.
    fn forget_key(&mut self, index: u32, key: StackKey) {
        if let Ok(entry) = self.by_key.find_entry(hash_of(key), |&other| other == index) {
            entry.remove();
        }
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

    /// Adds `change` to a number of blocks of the stack. The amounts must change first: [`Self::change`] records the
    /// histograms before their first change since the last delta.
    #[inline]
    pub(super) fn count(&mut self, index: u32, quantity: BlockQuantity, log2: Log2, change: u64) {
        self.histograms_at(index).count(quantity, log2, change);
    }

    #[inline]
    fn histograms_at(&mut self, index: u32) -> &mut BlockHistograms {
        let index = index as usize;
        if self.histograms.len() <= index {
            self.histograms.resize(index + 1, BlockHistograms::default());
        }
        &mut self.histograms[index]
    }

    /// Iterates over the histograms of the stacks that have some.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (StackKey, BlockHistograms)> {
        let all = self.stacks.iter().zip(&self.histograms).filter(|(_, histograms)| !histograms.is_empty());
        all.map(|(totals, histograms)| (totals.key, histograms.clone()))
    }

    /// Adds to the temporary amount.
    #[inline]
    pub(super) fn add_temporary(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.temporary += amount);
    }

    /// Adds a change of the live amount of blocks from an earlier epoch, for the next delta. Returns false if the delta has
    /// too many of them.
    #[cold]
    pub(super) fn add_by_epoch(&mut self, index: u32, epoch: Epoch, change: Amount, epochs: &mut Epochs) -> bool {
        let key = self.key(index);
        // A sum has no epochs.
        self.send_stacks();
        self.changes.as_mut().is_none_or(|changes| changes.add_by_epoch(key, epoch, change, epochs))
    }

    /// Totals of a forked child: the live amounts, which count as allocated. `None`, and a loss, if the budget is exceeded.
    pub(super) fn fork(&self, budget: &mut Budget) -> Option<Self> {
        let mut child = self.clone();
        child.merged = 0;
        child.changes = None;
        for (index, totals) in (0..).zip(&self.stacks) {
            if totals.live == Amount::default() && !totals.is_vacant() {
                child.vacate(index);
            }
        }
        if !budget.totals.request(child.limited) {
            budget.losses.add(LossReason::StacksFull, u64::from(child.limited));
            return None;
        }
        for totals in &mut child.stacks {
            totals.alloc = totals.live;
        }
        child.inherited = child.stacks.iter().map(|totals| totals.alloc).collect();
        child.changes = self
            .changes
            .is_some()
            .then(|| Box::new(ChangedStacks::of_new(child.iter().map(|(index, totals)| (index, totals.key)))));
        Some(child)
    }

    /// Iterates over the stacks with inherited amounts.
    pub(super) fn inherited_stacks(&self) -> impl Iterator<Item = StackId> {
        let inherited = self.stacks.iter().zip(&self.inherited).filter(|(_, amount)| **amount != Amount::default());
        inherited.map(|(totals, _)| totals.key.stack)
    }

    /// Iterates over the stacks with live amounts.
    pub(super) fn live_stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.iter().filter(|totals| totals.live != Amount::default()).map(|totals| totals.key.stack)
    }

    /// Number of stacks that count towards the limit.
    pub(super) const fn limited(&self) -> u32 {
        self.limited
    }

    /// Number of times that a stack was merged.
    pub(super) const fn merged(&self) -> u64 {
        self.merged
    }

    pub(super) fn key(&self, index: u32) -> StackKey {
        self.get(index).map_or(StackKey::from(StackId::FAILED), |totals| totals.key)
    }

    /// Returns the part of the process that the stack belongs to.
    #[inline]
    pub(super) fn part(&self, index: u32) -> Part {
        self.get(index).map_or(Part::WHOLE, |totals| totals.key.part)
    }

    /// Returns true if the stack has allocated one block so far.
    #[inline]
    pub(super) fn has_one_allocation(&self, index: u32) -> bool {
        self.get(index).is_some_and(|totals| totals.alloc.count == 1)
    }

    /// Usage of pages or mappings, none of which outlives its image. Inherited amounts of an ended image are left out: most
    /// forked children exec at once, and would repeat their parent's totals.
    pub(super) fn memory_usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, merged_stacks: self.merged, ..ImageUsage::default() };
        for (index, totals) in self.iter() {
            let (live, alloc) = match ended {
                None => (totals.live, totals.alloc),
                Some(_) => (Amount::default(), totals.alloc - self.inherited(index)),
            };
            let stack_usage = Quantities::of_blocks([live, alloc, Amount::default()]);
            if ended.is_some() && stack_usage.is_zero() {
                continue;
            }
            usage.total += stack_usage;
            usage.by_stack.insert(totals.key, stack_usage);
        }
        usage
    }

    /// Leaves the stacks out of deltas, which have their sum. There must be none.
    pub(super) fn defer_stacks(&mut self) {
        self.deferred = Some(Box::default());
    }

    /// Returns true if the stacks are left out of deltas.
    pub(super) const fn defers_stacks(&self) -> bool {
        self.deferred.is_some()
    }

    /// Replaces the sum in earlier deltas by the stacks, if they were left out. Later deltas have the stacks.
    pub(super) fn send_stacks(&mut self) {
        if let Some(sum) = self.deferred.take() {
            let stacks = self.iter().map(|(index, totals)| (index, totals.key));
            self.changes = Some(Box::new(ChangedStacks::of_deferred(stacks, *sum)));
        }
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        if let Some(sum) = &mut self.deferred {
            let mut now = DeferredStacks { live: self.live, merged: self.merged, ..DeferredStacks::default() };
            for totals in &self.stacks {
                now.alloc += totals.alloc;
                now.temporary += totals.temporary;
            }
            let (total, merged_stacks) = sum.replace(now);
            return ImageUsage { merged_stacks, ..ImageUsage::of_sum(total) };
        }
        let Some(changes) = &mut self.changes else { return ImageUsage::default() };
        let (by_stack, histograms) = changes.take(|index| {
            let histograms = self.histograms.get(index as usize);
            Some((self.stacks.get(index as usize)?.amounts(), histograms.cloned().unwrap_or_default()))
        });
        let (by_epoch, merged_stacks) = (changes.take_by_epoch(), changes.take_merged(self.merged));
        let total = by_stack.values().copied().sum();
        ImageUsage { total, by_stack, histograms, by_epoch, merged_stacks, ..ImageUsage::default() }
    }

    /// Returns true if changes are tracked.
    pub(super) const fn tracks_changes(&self) -> bool {
        self.changes.is_some()
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

    /// Returns a number that no index reaches.
    pub(super) const fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Iterates over the stacks with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &StackTotals)> {
        self.stacks.iter().enumerate().filter(|(_, totals)| !totals.is_vacant())
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
            if let Some(changes) = &mut self.changes {
                changes.record(index, totals.key, totals.amounts(), self.histograms.get(index as usize));
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
