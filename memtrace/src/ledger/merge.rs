//! Merging of stacks without live blocks, to bound memory.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::budget::Budget;
use super::deltas::Deltas;
use super::process::Process;
use super::processes::Processes;
use crate::model::{EventClass, ImageId, Magnitude, StackId};

/// Maximum number of entries for merged stacks, relative to that of stacks with frames.
const MAX_MERGED: u64 = 4;

/// Merges the totals of stacks without live blocks, the smallest first.
#[cold]
pub(super) fn merge_totals(processes: &mut Processes, budget: &mut Budget, deltas: &mut Deltas) {
    let count = budget.totals.begin_merge();
    let idle_of = |process: &Process| {
        let stacks = process.image.as_ref().map(|image| image.idle_stacks()).unwrap_or_default();
        let id = process.id;
        stacks.into_iter().map(move |(class, key, magnitude)| (class, magnitude, (id, class, key)))
    };
    let idle = processes.iter().flat_map(idle_of).collect();
    for (ImageId { pid, .. }, class, key) in smallest(idle, count as usize) {
        let Some(slot) = processes.find(pid) else { continue };
        deltas.set_changed(slot);
        let image = processes.slot_mut(slot).and_then(|process| process.image.as_mut());
        if image.is_some_and(|image| image.merge_stack(class, key, budget)) {
            budget.totals.release(1);
        }
    }
}

/// Removes the frames of stacks without live blocks here, the smallest first. `max_stacks` is the limit of
/// stacks with frames.
pub(super) fn merge_frames(processes: &mut Processes, budget: &mut Budget, max_stacks: u32) {
    let count = budget.begin_merge_of_frames();
    let idle = processes.iter().flat_map(idle_frames).collect();
    let mut merged: FxHashMap<_, FxHashSet<StackId>> = FxHashMap::default();
    for (ImageId { pid, .. }, stack) in smallest(idle, count as usize) {
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

/// Returns the stacks of a process that have frames and no live blocks.
fn idle_frames(process: &Process) -> Vec<Candidate<(ImageId, StackId)>> {
    let (live, magnitudes) = match &process.image {
        Some(image) => (image.live_stacks(), image.magnitudes()),
        None => Default::default(),
    };
    let is_idle = |id: &StackId| process.stacks.has_frames_of(*id) && !live.contains(id);
    let ids = process.stacks.ids().filter(is_idle);
    let magnitude = |id: &StackId| magnitudes.get(id).copied().unwrap_or_default();
    ids.map(|id| (EventClass::Heap, magnitude(&id), (process.id, id))).collect()
}

/// Something of this event class and magnitude.
type Candidate<T> = (EventClass, Magnitude, T);

/// Returns the `count` smallest of `all`.
fn smallest<T: Ord>(all: Vec<Candidate<T>>, count: usize) -> impl Iterator<Item = T> {
    let mut sums: BTreeMap<EventClass, Magnitude> = BTreeMap::new();
    all.iter().for_each(|(class, magnitude, _)| sums.entry(*class).or_default().add(*magnitude));
    let share = |class, magnitude: Magnitude| magnitude.share_of(sums.get(&class).copied().unwrap_or_default());
    let mut items: Vec<_> = all.into_iter().map(|(class, magnitude, item)| (share(class, magnitude), item)).collect();
    if count < items.len() {
        items.select_nth_unstable(count);
        items.truncate(count);
    }
    items.into_iter().map(|(_, item)| item)
}
