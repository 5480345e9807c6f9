//! Totals of one image by stack.

mod estimates;

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use memtrace_model::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Epoch, ImageEnd, ImageUsage, Log2, LossReason, Part, PartKeys,
    Quantities, StackId, StackKey, Tid,
};
use rustc_hash::FxBuildHasher;

use super::budget::{Budget, SPREADS, is_limited, merged_key};
use super::changed_stacks::ChangedStacks;
use super::deferred_stacks::DeferredStacks;
use super::epochs::Epochs;
use super::spreads::{self, Spreads, StackSpreads};

/// Returns the hash of a key. The ID of a stack is a hash itself.
#[inline]
fn hash_of(key: StackKey) -> u64 {
    match key.part.keys() {
        PartKeys::NONE => key.stack.0,
        _ => FxBuildHasher.hash_one(key),
    }
}

/// Totals of one stack. The freed amount is `alloc` minus `live`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackTotals {
    pub(super) key: StackKey,
    pub(super) live: Amount,
    pub(super) alloc: Amount,
    /// Amount that the allocating thread has freed before its next allocation.
    pub(super) temporary: Amount,
    /// Live bytes of the stack at the image's high-water mark with the ordinal `seen_peak`.
    at_peak: Bytes,
    /// Value of [`ImageTotals::peaks`] when `at_peak` was recorded; [`VACANT`] for an index without a stack.
    seen_peak: u64,
}

/// Value that [`ImageTotals::peaks`] never has.
const VACANT: u64 = u64::MAX;

impl StackTotals {
    /// Returns true for an index without a stack. The allocated amount of a stack can be 0, because allocations can be
    /// retracted.
    const fn is_vacant(&self) -> bool {
        self.seen_peak == VACANT
    }

    /// Reads the first field, a field in the middle and the last field, because the totals are in two or three
    /// cache lines. Returns a value that depends on these fields.
    pub(super) const fn load(&self) -> u64 {
        self.key.stack.0 ^ self.alloc.count ^ self.seen_peak
    }

    /// Returns the live, allocated and temporary amounts.
    const fn amounts(&self) -> [Amount; 3] {
        [self.live, self.alloc, self.temporary]
    }

    /// Returns the quantities that a stack has while the image runs, without the spreads of estimates.
    pub(super) const fn quantities(&self) -> Quantities {
        Quantities::of_blocks(self.amounts())
    }
}

/// Totals of one image by stack. Each stack has an index.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageTotals {
    stacks: Vec<StackTotals>,
    /// Indices by key. The keys are in `stacks`: an event reads the totals of its stack anyway, and a table with
    /// only indices needs a third of the cache lines.
    by_key: HashTable<u32>,
    /// Sizes and lifetimes of blocks, by stack index. A stack beyond the end of the list has no sizes and
    /// lifetimes. The list is empty if sizes and lifetimes are not counted.
    histograms: Vec<BlockHistograms>,
    /// Free indices of `stacks`.
    vacant: Vec<u32>,
    /// Number of stacks that count towards the limit of stacks. A stack with spreads counts as two.
    limited: u32,
    /// Number of times that a stack was merged.
    merged: u64,
    /// Number of keys that [`Self::end_threads`] has given to stacks of ended threads.
    ended_threads: u32,
    /// Amounts inherited on fork, by index; empty if the process was not forked.
    inherited: Vec<Amount>,
    /// Spreads of the estimates in `stacks`.
    spreads: Spreads,
    live: Amount,
    peak: Bytes,
    /// Number of times that the live bytes have exceeded their previous maximum.
    peaks: u64,
    /// Changes since the last delta; `None` without deltas, without stacks, or while the stacks are deferred.
    changes: Option<Box<ChangedStacks>>,
    /// Sum of the stacks in earlier deltas; `None` if deltas have the stacks themselves.
    deferred: Option<Box<DeferredStacks>>,
}

impl ImageTotals {
    /// Returns the index of `key`. Adds the key if it is new. If the budget is exceeded, returns the index of
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
    pub(super) fn index(&self, key: StackKey) -> Option<u32> {
        self.by_key.find(hash_of(key), |&index| self.stacks[index as usize].key == key).copied()
    }

    /// Returns a reference to an index that usually belongs to `key`. Reads only the tags of the hash table.
    #[inline]
    pub(super) fn likely_index(&self, key: StackKey) -> Option<&u32> {
        self.by_key.find(hash_of(key), |_| true)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&StackTotals> {
        self.stacks.get(index as usize)
    }

    /// Returns the index of the stack that counts blocks whose stack did not fit, if there are such blocks.
    pub(super) fn failed(&self) -> Option<u32> {
        self.index(StackKey::from(StackId::FAILED))
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
                // The maximum number of stacks is a u32.
                self.stacks.len() as u32 - 1
            }
        };
        self.add_key(index, key);
        self.limited += u32::from(is_limited(key));
        index
    }

    /// Removes the stack at `index`, and returns its totals, histograms and spreads.
    fn vacate(&mut self, index: u32) -> Option<(StackTotals, BlockHistograms, StackSpreads)> {
        let nothing = StackTotals {
            key: StackKey::from(StackId::FAILED),
            live: Amount::default(),
            alloc: Amount::default(),
            temporary: Amount::default(),
            at_peak: Bytes(0),
            seen_peak: VACANT,
        };
        self.forget_key(index, self.get(index)?.key);
        let removed = std::mem::replace(self.stacks.get_mut(index as usize)?, nothing);
        let histograms = self.histograms.get_mut(index as usize).map(std::mem::take).unwrap_or_default();
        if let Some(changes) = &mut self.changes {
            changes.remove(index, removed.key, removed.amounts(), &histograms, &self.spreads);
        }
        self.vacant.push(index);
        let spreads = self.spreads.remove(&index);
        if is_limited(removed.key) {
            self.limited -= 1 + if spreads.is_some() { SPREADS } else { 0 };
        }
        Some((removed, histograms, spreads.unwrap_or_default()))
    }

    /// Iterates over the stacks without live amounts that count towards the limit. `is_pinned` returns true for an
    /// index that a tentative free refers to.
    pub(super) fn idle(&self, is_pinned: impl Fn(u32) -> bool) -> impl Iterator<Item = (StackKey, Quantities)> {
        let is_idle = move |(index, totals): &(u32, &StackTotals)| {
            let is_live = totals.live != Amount::default() || totals.is_vacant();
            !is_live && is_limited(totals.key) && !is_pinned(*index)
        };
        (0..).zip(&self.stacks).filter(is_idle).map(|(_, totals)| (totals.key, totals.quantities()))
    }

    /// Merges the stack `key` into the sum of merged stacks. The stack must be one of [`Self::idle`]. Returns the
    /// index of the stack and the index of the sum.
    pub(super) fn merge_stack(&mut self, key: StackKey) -> Option<[u32; 2]> {
        let index = self.index(key)?;
        let other = merged_key(key);
        let other = self.index(other).unwrap_or_else(|| self.insert(other));
        let at_peak = self.get(index).map_or(Bytes(0), |totals| self.at_peak(totals));
        let (removed, histograms, spreads) = self.vacate(index)?;
        self.change(other, |totals| {
            totals.alloc += removed.alloc;
            totals.temporary += removed.temporary;
            totals.at_peak.0 += at_peak.0;
        });
        if !histograms.is_empty() {
            self.histograms_at(other).add(&histograms);
        }
        if spreads != StackSpreads::default() {
            self.spreads.entry(other).or_default().add(spreads);
        }
        if let Some(inherited) = self.inherited.get_mut(index as usize).map(std::mem::take) {
            let size = self.inherited.len().max(other as usize + 1);
            self.inherited.resize(size, Amount::default());
            self.inherited[other as usize] += inherited;
        }
        self.merged += 1;
        Some([index, other])
    }

    /// Merges stacks of ended threads without live amounts, as [`Self::merge_stack`] does. Gives the other stacks of
    /// ended threads keys that no thread has, because a later thread can get the ID of an ended one. `is_pinned`: as
    /// for [`Self::idle`]. Returns the number of stacks that the merged stacks counted as in the limit.
    pub(super) fn end_threads(&mut self, is_ended: impl Fn(Tid) -> bool, is_pinned: impl Fn(u32) -> bool) -> u32 {
        let is_ended = |tid: Tid| tid.is_of_ended() || is_ended(tid);
        let is_of_ended = |totals: &StackTotals| !totals.is_vacant() && totals.key.part.thread().is_some_and(is_ended);
        let of_ended = (0..).zip(&self.stacks).filter(|(_, totals)| is_of_ended(totals));
        let of_ended: Vec<_> = of_ended.map(|(index, totals)| (index, totals.key, totals.live)).collect();
        let before = self.limited;
        for (index, key, live) in of_ended {
            if live == Amount::default() && is_limited(key) && !is_pinned(index) {
                self.merge_stack(key);
            } else if key.part.thread().is_some_and(|tid| !tid.is_of_ended()) {
                self.end_thread(index, key);
            }
        }
        before - self.limited
    }

    /// Gives a stack of an ended thread another key. Does nothing if deltas refer to the key.
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

    /// Adds the index of `key` to the hash table. The totals at this index must have the key.
    fn add_key(&mut self, index: u32, key: StackKey) {
        self.by_key.insert_unique(hash_of(key), index, |&other| hash_of(self.stacks[other as usize].key));
    }

    /// Removes the index of `key` from the hash table.
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

    /// Reverts an allocation, as if it had not happened.
    pub(super) fn retract(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| {
            totals.live -= amount;
            totals.alloc -= amount;
        });
        self.live -= amount;
    }

    /// Adds blocks that are not followed to the allocated amount.
    pub(super) fn add_dropped(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.alloc += amount);
    }

    pub(super) fn undo_free(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.live += amount);
        self.live += amount;
        self.update_peak();
    }

    /// Adds `change` to a bucket of the stack's histogram of `quantity`. The amounts must change first:
    /// [`Self::change`] records the histograms before their first change since the last delta.
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

    /// Iterates over the stacks with histograms, and clones the histograms.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (StackKey, BlockHistograms)> {
        let all = self.stacks.iter().zip(&self.histograms).filter(|(_, histograms)| !histograms.is_empty());
        all.map(|(totals, histograms)| (totals.key, histograms.clone()))
    }

    /// Adds to the temporary amount.
    #[inline]
    pub(super) fn add_temporary(&mut self, index: u32, amount: Amount) {
        self.change(index, |totals| totals.temporary += amount);
    }

    /// Adds a change of the live amount of blocks from an earlier epoch to the next delta. Returns false if the
    /// delta has too many such changes.
    #[cold]
    pub(super) fn add_by_epoch(&mut self, index: u32, epoch: Epoch, change: Amount, epochs: &mut Epochs) -> bool {
        let key = self.key(index);
        // The sum of deferred stacks has no epochs, so the next delta gets the stacks themselves.
        self.send_stacks();
        self.changes.as_mut().is_none_or(|changes| changes.add_by_epoch(key, epoch, change, epochs))
    }

    /// Returns the totals of a forked child: the live amounts, which count as allocated. If the budget is exceeded,
    /// counts a loss and returns `None`.
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
        child.spreads.values_mut().for_each(|spreads| spreads.alloc = spreads.live);
        child.inherited = child.stacks.iter().map(|totals| totals.alloc).collect();
        child.changes = self
            .changes
            .is_some()
            .then(|| Box::new(ChangedStacks::of_new(child.iter().map(|(index, totals)| (index, totals.key)))));
        Some(child)
    }

    /// Iterates over the stacks with amounts that were inherited on fork.
    pub(super) fn inherited_stacks(&self) -> impl Iterator<Item = StackId> {
        let inherited = self.stacks.iter().zip(&self.inherited).filter(|(_, amount)| **amount != Amount::default());
        inherited.map(|(totals, _)| totals.key.stack)
    }

    /// Iterates over the stacks with live amounts.
    pub(super) fn live_stacks(&self) -> impl Iterator<Item = StackId> {
        self.stacks.iter().filter(|totals| totals.live != Amount::default()).map(|totals| totals.key.stack)
    }

    /// Returns the number of stacks that count towards the limit of stacks. A stack with spreads counts as two.
    pub(super) const fn limited(&self) -> u32 {
        self.limited
    }

    /// Returns the number of times that a stack was merged.
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

    /// Returns true if the stack has allocated nothing but `amount` so far.
    #[inline]
    pub(super) fn has_allocated_only(&self, index: u32, amount: Amount) -> bool {
        self.get(index).is_some_and(|totals| totals.alloc == amount)
    }

    /// Returns the usage of pages or mappings. An ended image has no live pages or mappings. Its inherited amounts
    /// are left out: most forked children exec at once, and would repeat the totals of their parent.
    pub(super) fn memory_usage(&self, ended: Option<ImageEnd>) -> ImageUsage {
        let mut usage = ImageUsage { ended, merged_stacks: self.merged, ..ImageUsage::default() };
        for (index, totals) in self.iter() {
            let (live, alloc) = match ended {
                None => (totals.live, totals.alloc),
                Some(_) => (Amount::default(), totals.alloc - self.inherited(index)),
            };
            let stack_usage = Quantities::of_blocks([live, alloc, Amount::default()]);
            if stack_usage.is_zero() {
                continue;
            }
            usage.total += stack_usage;
            usage.by_stack.insert(totals.key, stack_usage);
        }
        usage
    }

    /// Leaves the stacks out of deltas, which have the sum of the stacks instead. There must be no stack yet.
    pub(super) fn defer_stacks(&mut self) {
        self.deferred = Some(Box::default());
    }

    /// Returns true if the stacks are left out of deltas.
    pub(super) const fn defers_stacks(&self) -> bool {
        self.deferred.is_some()
    }

    /// If the stacks were left out of earlier deltas, adds them to the next delta and subtracts their sum. Later
    /// deltas have the stacks.
    pub(super) fn send_stacks(&mut self) {
        if let Some(sum) = self.deferred.take() {
            let stacks = self.iter().map(|(index, totals)| (index, totals.key));
            self.changes = Some(Box::new(ChangedStacks::of_deferred(stacks, *sum)));
        }
    }

    /// Removes and returns the changes since the last delta.
    pub(super) fn take_changes(&mut self) -> ImageUsage {
        if let Some(sum) = &mut self.deferred {
            let (live, merged, spreads) = (self.live, self.merged, spreads::sum(&self.spreads));
            let mut now = DeferredStacks { live, merged, spreads, ..DeferredStacks::default() };
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
            let spreads = self.spreads.get(&index).copied().unwrap_or_default();
            Some((self.stacks.get(index as usize)?.amounts(), histograms.cloned().unwrap_or_default(), spreads))
        });
        let (by_epoch, merged_stacks) = (changes.take_by_epoch(), changes.take_merged(self.merged));
        let total = by_stack.values().copied().sum();
        ImageUsage { total, by_stack, histograms, by_epoch, merged_stacks, ..ImageUsage::default() }
    }

    /// Returns true if changes are tracked.
    pub(super) const fn tracks_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Returns the amount that the stack inherited on fork.
    pub(super) fn inherited(&self, index: usize) -> Amount {
        self.inherited.get(index).copied().unwrap_or_default()
    }

    pub(super) const fn live(&self) -> Amount {
        self.live
    }

    pub(super) const fn peak(&self) -> Bytes {
        self.peak
    }

    /// Returns the number of indices, including free ones.
    pub(super) const fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Iterates over the stacks with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &StackTotals)> {
        self.stacks.iter().enumerate().filter(|(_, totals)| !totals.is_vacant())
    }

    /// Returns the live bytes of the stack at the image's latest high-water mark.
    pub(super) const fn at_peak(&self, totals: &StackTotals) -> Bytes {
        if totals.seen_peak < self.peaks { totals.live.bytes } else { totals.at_peak }
    }

    /// Changes the totals of a stack. The first change after a high-water mark records the live bytes before this
    /// change, so a high-water mark costs nothing for stacks that do not change.
    #[inline]
    fn change(&mut self, index: u32, change: impl FnOnce(&mut StackTotals)) {
        if let Some(totals) = self.stacks.get_mut(index as usize) {
            if totals.seen_peak < self.peaks {
                totals.at_peak = totals.live.bytes;
                totals.seen_peak = self.peaks;
            }
            if let Some(changes) = &mut self.changes {
                let histograms = self.histograms.get(index as usize);
                changes.record(index, totals.key, totals.amounts(), histograms, &self.spreads);
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
