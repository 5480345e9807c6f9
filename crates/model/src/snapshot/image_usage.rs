//! Totals of one process image.

use std::collections::BTreeMap;

use crate::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Demotion, Epoch, EventClass, ImageEnd, ImageRusage, Pid, Quantities,
    Residency, ResidentSet, StackId, StackKey, StallKey, StallStats, StallTotals, Touched,
};

/// Totals of one process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUsage {
    /// Kind of end, if the image has ended.
    pub ended: Option<ImageEnd>,
    /// Sum of all stacks.
    pub total: Quantities,
    /// Number of frees of unknown blocks: blocks from before the start of tracing, and blocks that a filter excluded.
    pub unmatched_frees: u64,
    /// Number of times that the allocator itself freed a block that had been freed before.
    pub repeated_frees: u64,
    /// Number of frees of unknown blocks that samplers reported. The blocks were sampled before tracing began, or never.
    pub unmatched_samples: u64,
    /// Demotion of the process, if it had too many live blocks.
    pub demotion: Demotion,
    /// Number of times that a stack without live blocks was merged into [`StackId::OTHER`] to bound memory.
    pub merged_stacks: u64,
    /// True if IDs of merged stacks were forgotten. A stack that is not in [`Stacks`](crate::Stacks) may be a merged
    /// stack.
    pub has_forgotten: bool,
    /// High-water mark of the live bytes; `None` if it was not recorded. A run with peaks has a single shard, because
    /// the peaks of several shards do not add up.
    pub peak: Option<Bytes>,
    /// Totals by stack and part of the process.
    pub by_stack: BTreeMap<StackKey, Quantities>,
    /// Sizes, lifetimes and ages of blocks, by stack. Stacks without values have no entry. Empty if they are not
    /// counted.
    pub histograms: BTreeMap<StackKey, BlockHistograms>,
    /// Changes of the live amounts of blocks that were allocated before the latest mark, by the epoch of the
    /// allocation. Only deltas have them.
    pub by_epoch: BTreeMap<(StackKey, Epoch), Amount>,
    /// Live pages or mappings of a running image, ordered by address. Empty for other event classes.
    pub touched: Vec<Touched>,
    /// Stalls, by kind and control group.
    pub stalls: BTreeMap<StallKey, StallStats>,
    /// Parent of a forked image that runs. Only page faults have it.
    pub copy_of: Option<Pid>,
    /// Process that owns the memory, if the image uses the memory of another process and has events of the class. The totals of
    /// these events belong to an image of the owner.
    pub shares_memory_of: Option<Pid>,
    /// Resident memory of a running image, if requested.
    pub resident: Option<Residency>,
    /// True if the resident memory of a running image is unknown, because its page tables could not be read. Only page faults
    /// and mappings have it.
    pub resident_is_unknown: bool,
    /// Rusage of the image's process. Only page faults have it.
    pub counts: ImageRusage,
    /// RSS of the image's process, if it runs. Only the heap has it.
    pub rss: Option<ResidentSet>,
}

impl ImageUsage {
    /// Gives each stack the id that `rename` returns, if it returns one. The totals of stacks with the same id are
    /// added.
    pub fn rename_stacks(&mut self, mut rename: impl FnMut(StackId) -> Option<StackId>) {
        for (key, usage) in take_renamed(&mut self.by_stack, &mut rename) {
            *self.by_stack.entry(key).or_default() += usage;
        }
        for (key, histograms) in take_renamed(&mut self.histograms, &mut rename) {
            self.histograms.entry(key).or_default().add(&histograms);
        }
        for touched in &mut self.touched {
            touched.key.stack = rename(touched.key.stack).unwrap_or(touched.key.stack);
        }
        self.join_touched();
    }

    /// Joins adjacent ranges of the same stack.
    fn join_touched(&mut self) {
        self.touched.dedup_by(|next, last| {
            let joins = last.end() == next.begin && last.key == next.key;
            last.pages += if joins { next.pages } else { 0 };
            joins
        });
    }

    /// Returns the change of an image with the sum of its stacks as the only stack, [`StackId::OTHER`].
    pub fn of_sum(total: Quantities) -> Self {
        let by_stack = if total.is_zero() { BTreeMap::new() } else { [(StackId::OTHER.into(), total)].into() };
        Self { total, by_stack, ..Self::default() }
    }

    /// Adds the totals of another shard, or of another image.
    pub fn merge(&mut self, other: Self) {
        self.ended = self.ended.max(other.ended);
        self.total += other.total;
        self.unmatched_frees = self.unmatched_frees.wrapping_add(other.unmatched_frees);
        self.repeated_frees = self.repeated_frees.wrapping_add(other.repeated_frees);
        self.unmatched_samples = self.unmatched_samples.wrapping_add(other.unmatched_samples);
        self.demotion.merge(other.demotion);
        self.merged_stacks = self.merged_stacks.wrapping_add(other.merged_stacks);
        self.has_forgotten |= other.has_forgotten;
        // At most one of the two usages has a peak, because a run with peaks has a single shard.
        self.peak = self.peak.max(other.peak);
        add_stacks(&mut self.by_stack, other.by_stack);
        for (key, theirs) in &other.histograms {
            self.histograms.entry(*key).or_default().add(theirs);
        }
        for (key, theirs) in other.by_epoch {
            *self.by_epoch.entry(key).or_default() += theirs;
        }
        for (key, theirs) in &other.stalls {
            self.stalls.entry(*key).or_default().merge(theirs);
        }
        self.touched.extend(other.touched);
        self.touched.sort_unstable_by_key(|touched| touched.begin);
        self.join_touched();
        self.copy_of = self.copy_of.or(other.copy_of);
        self.shares_memory_of = self.shares_memory_of.or(other.shares_memory_of);
        self.resident = self.resident.take().or(other.resident);
        self.resident_is_unknown |= other.resident_is_unknown;
        self.rss = self.rss.or(other.rss);
        self.counts.begin = self.counts.begin.or(other.counts.begin);
        self.counts.end = self.counts.end.or(other.counts.end);
    }

    /// Ends the image: its live amounts become held at exit, discarded or freed, as if every shard had received the
    /// end.
    pub fn end(&mut self, end: ImageEnd, class: EventClass) {
        self.ended = self.ended.max(Some(end));
        self.touched.clear();
        for stack in self.by_stack.values_mut() {
            self.total -= *stack;
            stack.end(end, class);
            self.total += *stack;
        }
        if end == ImageEnd::Exec {
            // Discarded blocks have no age.
            self.histograms.values_mut().for_each(|histograms| histograms.clear(BlockQuantity::Age));
            self.histograms.retain(|_, histograms| !histograms.is_empty());
        }
    }

    /// Returns the changes of the additive quantities since `earlier`.
    pub fn diff(&self, earlier: &Self) -> Self {
        let mut change = self.clone();
        change.total = self.total.since(earlier.total);
        change.unmatched_frees = change.unmatched_frees.wrapping_sub(earlier.unmatched_frees);
        change.repeated_frees = change.repeated_frees.wrapping_sub(earlier.repeated_frees);
        change.unmatched_samples = change.unmatched_samples.wrapping_sub(earlier.unmatched_samples);
        change.demotion = change.demotion.since(&earlier.demotion);
        change.merged_stacks = change.merged_stacks.wrapping_sub(earlier.merged_stacks);
        // The peak of an interval is not the difference of two peaks.
        change.peak = None;
        for (id, then) in &earlier.by_stack {
            *change.by_stack.entry(*id).or_default() -= *then;
        }
        change.by_stack.values_mut().for_each(|usage| *usage = usage.additive());
        for (key, then) in &earlier.histograms {
            change.histograms.entry(*key).or_default().subtract(then);
        }
        for (key, then) in &earlier.stalls {
            let now = change.stalls.entry(*key).or_default();
            *now = now.since(then);
        }
        change.remove_zeros();
        // Lists of pages have no difference.
        change.touched.clear();
        change.resident = None;
        change.resident_is_unknown = false;
        change.rss = None;
        change.counts = ImageRusage::default();
        change.copy_of = None;
        change
    }

    /// Removes the entries of stacks, histograms, epochs and stalls without changes.
    pub fn remove_zeros(&mut self) {
        self.by_stack.retain(|_, stack| *stack != Quantities::default());
        self.histograms.retain(|_, histograms| !histograms.is_empty());
        self.by_epoch.retain(|_, change| *change != Amount::default());
        self.stalls.retain(|_, stats| stats.stalls != StallTotals::default());
    }

    pub(super) fn is_zero(&self) -> bool {
        self.total.is_zero()
            && self.unmatched_frees == 0
            && self.repeated_frees == 0
            && self.unmatched_samples == 0
            && self.demotion == Demotion::default()
            && self.by_stack.is_empty()
            && self.histograms.is_empty()
    }
}

/// Adds the totals of stacks to other totals.
fn add_stacks(ours: &mut BTreeMap<StackKey, Quantities>, mut theirs: BTreeMap<StackKey, Quantities>) {
    /// The maps are joined by `append` if the new entries are at least this part of `ours`: one in this number.
    const APPENDED: usize = 8;
    theirs.retain(|key, theirs| match ours.get_mut(key) {
        Some(ours) => {
            *ours += *theirs;
            false
        }
        None => true,
    });
    if theirs.len() >= ours.len() / APPENDED {
        // The nodes of the map that `append` makes are full. With single insertions, a third of the map would be empty.
        // For a process with many stacks, the maps of two shards take the most memory for a moment.
        ours.append(&mut theirs);
    } else {
        ours.extend(theirs);
    }
}

/// Removes the totals of the stacks that `rename` renames, and returns them with their new keys. All other totals stay
/// in place, because a copy would double the memory for a moment.
fn take_renamed<T>(
    totals: &mut BTreeMap<StackKey, T>,
    mut rename: impl FnMut(StackId) -> Option<StackId>,
) -> Vec<(StackKey, T)> {
    let mut ids = Vec::new();
    let removed = totals.extract_if(.., |key, _| {
        let id = rename(key.stack);
        ids.extend(id);
        id.is_some()
    });
    let removed: Vec<_> = removed.collect();
    removed.into_iter().zip(ids).map(|((key, of_stack), stack)| (StackKey { stack, ..key }, of_stack)).collect()
}
