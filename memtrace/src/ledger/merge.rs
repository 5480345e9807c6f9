//! Merging of stacks without live blocks, to bound memory.

use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::Budget;
use super::deltas::Deltas;
use super::process::Process;
use super::processes::Processes;
use crate::model::{ImageId, StackId};

/// Maximum number of entries for merged stacks, relative to that of stacks with frames.
const MAX_MERGED: u64 = 4;

/// Merges the totals of stacks without live blocks, those that allocated least first.
#[cold]
pub(super) fn merge_totals(processes: &mut Processes, budget: &mut Budget, deltas: &mut Deltas) {
    let count = budget.totals.begin_merge();
    let idle_of = |process: &Process| {
        let stacks = process.image.as_ref().map(|image| image.idle_stacks()).unwrap_or_default();
        let id = process.id;
        stacks.into_iter().map(move |(bytes, class, key)| (bytes, id, class, key))
    };
    let idle: Vec<_> = processes.iter().flat_map(idle_of).collect();
    for (_, ImageId { pid, .. }, class, key) in smallest(idle, count as usize) {
        let Some(slot) = processes.find(pid) else { continue };
        deltas.set_changed(slot);
        let image = processes.slot_mut(slot).and_then(|process| process.image.as_mut());
        if image.is_some_and(|image| image.merge_stack(class, key, budget)) {
            budget.totals.release(1);
        }
    }
}

/// Removes the frames of stacks without live blocks here, those that allocated least first. `max_stacks` is the limit of
/// stacks with frames.
pub(super) fn merge_frames(processes: &mut Processes, budget: &mut Budget, max_stacks: u32) {
    let count = budget.begin_merge_of_frames();
    let idle = processes.iter().flat_map(idle_frames).collect();
    let mut merged: FxHashMap<_, FxHashSet<StackId>> = FxHashMap::default();
    for (_, ImageId { pid, .. }, stack) in smallest(idle, count as usize) {
        merged.entry(pid).or_default().insert(stack);
    }
    for (pid, stacks) in merged {
        if let Some(process) = processes.get_mut(pid) {
            let nodes = process.stacks.calls().len();
            process.stacks.merge_stacks(|id| stacks.contains(&id));
            budget.release_frames(stacks.len() as u32, nodes - process.stacks.calls().len());
        }
    }
    let entries: usize = processes.iter().map(|process| process.stacks.merged()).sum();
    if entries as u64 > MAX_MERGED * u64::from(max_stacks) {
        processes.iter_mut().for_each(|process| process.stacks.forget_merged());
    }
}

/// Returns the stacks of a process that have frames and no live blocks, with the bytes that they have allocated.
fn idle_frames(process: &Process) -> Vec<(u64, ImageId, StackId)> {
    let (live, allocated) = match &process.image {
        Some(image) => (image.live_stacks(), image.allocated_by_stack()),
        None => Default::default(),
    };
    let is_idle = |id: &StackId| process.stacks.has_frames_of(*id) && !live.contains(id);
    let ids = process.stacks.ids().filter(is_idle);
    ids.map(|id| (allocated.get(&id).copied().unwrap_or(0), process.id, id)).collect()
}

/// Returns the `count` smallest items.
fn smallest<T: Ord>(mut items: Vec<T>, count: usize) -> Vec<T> {
    if count < items.len() {
        items.select_nth_unstable(count);
        items.truncate(count);
    }
    items
}
