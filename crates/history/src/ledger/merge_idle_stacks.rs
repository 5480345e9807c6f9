//! Merging of stacks without live blocks, to bound memory.

use std::cmp::Reverse;

use memtrace_model::{ImageId, Magnitudes, StackId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::Budget;
use super::deltas::Deltas;
use super::process::Process;
use super::processes::Processes;

/// Maximum number of IDs of merged stacks after a merge, as a multiple of the limit of stacks.
const MAX_MERGED: u64 = 4;

/// Merges the totals of stacks without live blocks, the smallest first.
#[cold]
pub(super) fn merge_totals(processes: &mut Processes, budget: &mut Budget, deltas: &mut Deltas) {
    let count = budget.totals.begin_merge();
    let idle_of = |process: &Process| process.image.as_ref().map(|image| image.idle_stacks()).unwrap_or_default();
    let mut all = Magnitudes::default();
    processes.iter().flat_map(idle_of).for_each(|(class, _, magnitude)| all.add(class, magnitude));
    let all = &all;
    let idle = processes.iter().flat_map(|process| {
        let with_size = |(class, key, magnitude)| (all.size(class, magnitude), process.id, class, key);
        idle_of(process).into_iter().map(with_size)
    });
    for (_, id, class, key) in smallest(idle.collect(), count as usize) {
        let Some(slot) = processes.find_image(id) else { continue };
        deltas.set_changed(slot);
        let image = processes.slot_mut(slot).and_then(|process| process.image.as_mut());
        let merged = image.map_or(0, |image| image.merge_stack(class, key, budget));
        budget.totals.release(merged);
    }
}

/// Removes the frames of stacks without live blocks in this ledger, the smallest first. `max_stacks`: limit of
/// stacks with frames.
pub(super) fn merge_frames(processes: &mut Processes, budget: &mut Budget, max_stacks: u32) {
    let count = budget.begin_merge_of_frames();
    let mut all = Magnitudes::default();
    let images = processes.iter().filter_map(|process| process.image.as_ref());
    images.flat_map(|image| image.magnitudes()).for_each(|(class, _, magnitude)| all.add(class, magnitude));
    let idle = processes.iter().flat_map(|process| idle_frames(process, &all)).collect();
    let mut merged: FxHashMap<ImageId, FxHashSet<StackId>> = FxHashMap::default();
    for (_, id, stack) in smallest(idle, count as usize) {
        merged.entry(id).or_default().insert(stack);
    }
    for (id, stacks) in merged {
        if let Some(process) = processes.image_mut(id) {
            let nodes = process.stacks.calls().len();
            process.stacks.merge_stacks(|id| stacks.contains(&id));
            budget.release_frames(stacks.len() as u32, nodes - process.stacks.calls().len());
        }
    }
    forget_merged(processes, MAX_MERGED * u64::from(max_stacks));
}

/// Removes IDs of merged stacks if there are more than `most`. Starts with the process that has the most, and stops
/// when half of `most` remain.
fn forget_merged(processes: &mut Processes, most: u64) {
    let by_process = processes.iter().map(|process| (process.stacks.merged() as u64, process.id));
    let mut by_process: Vec<_> = by_process.filter(|&(merged, _)| merged > 0).collect();
    let mut all: u64 = by_process.iter().map(|(merged, _)| merged).sum();
    if all <= most {
        return;
    }
    by_process.sort_unstable_by_key(|&(merged, id)| (Reverse(merged), id));
    for (merged, id) in by_process {
        if all <= most / 2 {
            return;
        }
        if let Some(process) = processes.image_mut(id) {
            forget_merged_of(process);
            all -= merged - process.stacks.merged() as u64;
        }
    }
}

/// Removes the IDs of merged stacks of a process that have no totals in this ledger.
fn forget_merged_of(process: &mut Process) {
    let before = process.stacks.merged();
    let totals = process.image.iter().flat_map(|image| image.magnitudes()).map(|(_, stack, _)| stack);
    let with_totals: FxHashSet<StackId> = totals.collect();
    process.stacks.forget_merged(|id| with_totals.contains(&id));
    process.has_forgotten |= process.stacks.merged() < before;
}

/// Returns the stacks of a process that have frames and no live blocks, with their sizes. `all`: sums over all stacks.
/// Sizes are relative to these sums.
fn idle_frames(process: &Process, all: &Magnitudes) -> Vec<(u64, ImageId, StackId)> {
    let live = process.image.as_ref().map(|image| image.live_stacks()).unwrap_or_default();
    let mut sizes: FxHashMap<StackId, u64> = FxHashMap::default();
    for (class, stack, magnitude) in process.image.iter().flat_map(|image| image.magnitudes()) {
        if !live.contains(&stack) {
            *sizes.entry(stack).or_default() += all.size(class, magnitude);
        }
    }
    let ids = process.stacks.ids_with_frames().filter(|id| !live.contains(id));
    ids.map(|id| (sizes.get(&id).copied().unwrap_or(0), process.id, id)).collect()
}

/// Returns the `count` smallest items.
fn smallest<T: Ord>(mut items: Vec<T>, count: usize) -> Vec<T> {
    if count < items.len() {
        items.select_nth_unstable(count);
        items.truncate(count);
    }
    items
}
