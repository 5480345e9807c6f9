//! Stacks of one image that changed since the last delta.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use memtrace_model::{Amount, BlockHistograms, Epoch, Quantities, StackId, StackKey};
use rustc_hash::FxHashMap;

use super::deferred_stacks::DeferredStacks;
use super::epochs::Epochs;
use super::spreads::{Spreads, StackSpreads};

/// Stacks that changed since the last delta, with their totals at that delta.
///
/// A stack that did not change takes 4 bytes and no time.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedStacks {
    changed: Vec<ChangedStack>,
    /// Position in `changed` plus one, by stack index; 0 if the stack did not change. Stacks beyond the end of the
    /// list did not change.
    positions: Vec<u32>,
    /// Spreads of the estimates at the last delta, by index in `changed`. An entry without samples has no spread.
    spreads: Spreads,
    /// Number of merged stacks at the last delta.
    merged: u64,
    /// Changes of the live amounts of blocks from earlier epochs.
    by_epoch: FxHashMap<(StackKey, Epoch), Amount>,
}

/// Totals of a stack at the last delta.
#[derive(Clone, Debug)]
struct ChangedStack {
    key: StackKey,
    /// Index of the stack; `None` if the stack was removed since the last delta.
    index: Option<u32>,
    live: Amount,
    alloc: Amount,
    temporary: Amount,
    histograms: BlockHistograms,
}

/// Changes of usage and of histograms by stack.
type Changes = (BTreeMap<StackKey, Quantities>, BTreeMap<StackKey, BlockHistograms>);

/// Live, allocated and temporary amounts of a stack, its histograms and its spreads.
type StackNow = ([Amount; 3], BlockHistograms, StackSpreads);

impl ChangedStacks {
    /// Returns the changes of a new image: all of its stacks are new.
    pub(super) fn of_new(stacks: impl Iterator<Item = (usize, StackKey)>) -> Self {
        let mut all = Self::default();
        // The maximum number of stacks is a u32.
        let none = Spreads::default();
        stacks.for_each(|(index, key)| all.insert(index as u32, key, [Amount::default(); 3], None, &none));
        all
    }

    /// Returns the changes of an image, if earlier deltas have only the sum of its stacks: the changes subtract
    /// `sum` and add `stacks`. The stacks have no histograms.
    pub(super) fn of_deferred(stacks: impl Iterator<Item = (usize, StackKey)>, sum: DeferredStacks) -> Self {
        let mut all = Self::of_new(stacks);
        let DeferredStacks { live, alloc, temporary, merged, spreads } = sum;
        let (key, histograms) = (StackKey::from(StackId::OTHER), BlockHistograms::default());
        all.changed.push(ChangedStack { key, index: None, live, alloc, temporary, histograms });
        all.set_last_spreads(spreads);
        Self { merged, ..all }
    }

    /// Records the live, allocated and temporary amounts and the histograms of a stack before its first change.
    /// `spreads`: spreads of all stacks before the change.
    #[inline]
    pub(super) fn record(
        &mut self,
        index: u32,
        key: StackKey,
        amounts: [Amount; 3],
        histograms: Option<&BlockHistograms>,
        spreads: &Spreads,
    ) {
        if self.positions.get(index as usize).is_none_or(|&position| position == 0) {
            self.insert(index, key, amounts, histograms, spreads);
        }
    }

    fn insert(
        &mut self,
        index: u32,
        key: StackKey,
        [live, alloc, temporary]: [Amount; 3],
        histograms: Option<&BlockHistograms>,
        spreads: &Spreads,
    ) {
        let histograms = histograms.cloned().unwrap_or_default();
        self.changed.push(ChangedStack { key, index: Some(index), live, alloc, temporary, histograms });
        self.set_last_spreads(spreads.get(&index).copied().unwrap_or_default());
        let slot = index as usize;
        if self.positions.len() <= slot {
            self.positions.resize(slot + 1, 0);
        }
        // A u32 is enough: there is one entry for each stack and one for each removal, and 2^32 removals take
        // longer than the time between two deltas.
        self.positions[slot] = self.changed.len() as u32;
    }

    /// Sets the spreads of the last entry.
    fn set_last_spreads(&mut self, spreads: StackSpreads) {
        if spreads != StackSpreads::default() {
            // The number of entries is a u32.
            self.spreads.insert(self.changed.len() as u32 - 1, spreads);
        }
    }

    /// Records that a stack is removed. Its index can belong to another stack from now on. `spreads`: as for
    /// [`Self::record`].
    pub(super) fn remove(
        &mut self,
        index: u32,
        key: StackKey,
        amounts: [Amount; 3],
        histograms: &BlockHistograms,
        spreads: &Spreads,
    ) {
        self.record(index, key, amounts, Some(histograms), spreads);
        let position = self.positions.get_mut(index as usize).map_or(0, std::mem::take);
        if let Some(removed) = self.changed.get_mut((position as usize).wrapping_sub(1)) {
            removed.index = None;
        }
    }

    /// Removes and returns the changes of all stacks. `now` returns the current numbers of the stack at an index.
    pub(super) fn take(&mut self, now: impl Fn(u32) -> Option<StackNow>) -> Changes {
        let mut all_histograms: BTreeMap<StackKey, BlockHistograms> = BTreeMap::new();
        let mut changes = Vec::with_capacity(self.changed.len());
        let spreads = std::mem::take(&mut self.spreads);
        for (entry, ChangedStack { key, index, live, alloc, temporary, histograms }) in
            (0..).zip(self.changed.drain(..))
        {
            let (amounts_now, mut histograms_now, mut spreads_now) = index.and_then(&now).unwrap_or_default();
            let [live_now, alloc_now, temporary_now] = amounts_now;
            if let Some(spreads) = spreads.get(&entry) {
                spreads_now.subtract(*spreads);
            }
            histograms_now.subtract(&histograms);
            if !histograms_now.is_empty() {
                all_histograms.entry(key).or_default().add(&histograms_now);
            }
            if let Some(position) = index.and_then(|index| self.positions.get_mut(index as usize)) {
                *position = 0;
            }
            let (live, alloc, temporary) = (live_now - live, alloc_now - alloc, temporary_now - temporary);
            changes.push((key, spreads_now.in_quantities(Quantities::of_blocks([live, alloc, temporary]))));
        }
        changes.sort_unstable_by_key(|(key, _)| *key);
        // A removed stack may have come back at another index.
        changes.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            if is_same {
                sum.1 += next.1;
            }
            is_same
        });
        let usage = changes.into_iter().filter(|(_, usage)| !usage.is_zero()).collect();
        all_histograms.retain(|_, histograms| !histograms.is_empty());
        (usage, all_histograms)
    }

    /// Adds a change of the live amount of blocks from an earlier epoch. Returns false if the delta has too many
    /// such changes.
    pub(super) fn add_by_epoch(&mut self, key: StackKey, epoch: Epoch, change: Amount, epochs: &mut Epochs) -> bool {
        match self.by_epoch.entry((key, epoch)) {
            Entry::Occupied(mut entry) => *entry.get_mut() += change,
            Entry::Vacant(_) if !epochs.request_change() => return false,
            Entry::Vacant(entry) => *entry.insert(Amount::default()) += change,
        }
        true
    }

    /// Removes and returns the changes of the live amounts of blocks from earlier epochs.
    pub(super) fn take_by_epoch(&mut self) -> BTreeMap<(StackKey, Epoch), Amount> {
        self.by_epoch.drain().filter(|(_, change)| *change != Amount::default()).collect()
    }

    /// Returns the number of stacks that were merged since the last delta. `merged`: number of merged stacks until
    /// now.
    pub(super) const fn take_merged(&mut self, merged: u64) -> u64 {
        merged - std::mem::replace(&mut self.merged, merged)
    }
}
