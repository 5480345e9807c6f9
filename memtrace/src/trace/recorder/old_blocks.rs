//! Blocks that are at least as old as `--older` requires, at the end of their process or of the run.
//!
//! Deltas count blocks of any age, because the age of a block changes without an event. The report of the run counts
//! only the old ones.

use std::collections::BTreeMap;

use memtrace_history::{Detail, DetailKind, PathNumber, TotalKey};
use memtrace_model::{Amount, EndedImage, EventClass, ImageId, ImageUsage, Quantities, StackEnd, StackKey};
use rustc_hash::FxHashMap;

use super::stacks::RecordedStacks;

/// Old blocks of each ended image, until the last changes of the image are recorded.
#[derive(Debug, Default)]
pub(super) struct OldBlocks {
    /// True if the run has a minimum age.
    is_limited: bool,
    held_at_exit: BTreeMap<ImageId, Vec<(StackKey, Quantities)>>,
}

impl OldBlocks {
    /// Returns an empty collection. `is_limited`: true for a run with a minimum age.
    pub(super) fn new(is_limited: bool) -> Self {
        Self { is_limited, held_at_exit: BTreeMap::new() }
    }

    /// Stores the blocks that an image held at exit. [`Self::take`] removes them.
    pub(super) fn add_ended(&mut self, ended: &EndedImage) {
        let heap = ended.usage.iter().filter(|(class, _)| self.is_limited && *class == EventClass::Heap);
        for (_, usage) in heap {
            let held = held(usage).collect::<Vec<_>>();
            if !held.is_empty() {
                self.held_at_exit.insert(ended.id, held);
            }
        }
    }

    /// Removes and returns the amounts of the old blocks of an ended image. All changes of the image must
    /// be recorded.
    pub(super) fn take(&mut self, image: ImageId, stacks: &RecordedStacks) -> Vec<Detail> {
        details(image, self.held_at_exit.remove(&image).unwrap_or_default(), stacks)
    }

    /// Returns the amounts of the old blocks of all other images at the end of the run. `images`: last totals of the
    /// running images.
    pub(super) fn finish(&mut self, images: &BTreeMap<ImageId, ImageUsage>, stacks: &RecordedStacks) -> Vec<Detail> {
        if !self.is_limited {
            return Vec::new();
        }
        let ended = std::mem::take(&mut self.held_at_exit).into_iter();
        let running = images.iter().map(|(&id, usage)| (id, held(usage).collect()));
        ended.chain(running).flat_map(|(id, held)| details(id, held, stacks)).collect()
    }
}

/// Returns the stacks with live blocks, or with blocks held at exit.
fn held(usage: &ImageUsage) -> impl Iterator<Item = (StackKey, Quantities)> + '_ {
    let is_held = |usage: &Quantities| usage.live() != Amount::default() || usage.exit() != Amount::default();
    usage.by_stack.iter().map(|(&key, usage)| (key, *usage)).filter(move |(_, usage)| is_held(usage))
}

fn details(image: ImageId, held: Vec<(StackKey, Quantities)>, stacks: &RecordedStacks) -> Vec<Detail> {
    let mut sums: FxHashMap<TotalKey, Quantities> = FxHashMap::default();
    for (key, usage) in held {
        let (path, end) = stacks.find(key.stack).unwrap_or((PathNumber::ROOT, StackEnd::FramesLost));
        *sums.entry(TotalKey { image, class: EventClass::Heap, path, end, part: key.part }).or_default() += usage;
    }
    let mut details = Vec::new();
    for (key, usage) in sums {
        let (live, exit) = (usage.live(), usage.exit());
        let numbers = [
            (DetailKind::OldLiveBytes, live.bytes.0),
            (DetailKind::OldLiveCount, live.count),
            (DetailKind::OldExitBytes, exit.bytes.0),
            (DetailKind::OldExitCount, exit.count),
        ];
        let spread = DetailKind::OLD_SPREAD.map(|(kind, quantity)| (kind, usage[quantity]));
        let numbers = numbers.into_iter().chain(spread).filter(|(_, value)| *value != 0);
        details.extend(numbers.map(|(kind, value)| Detail { key, kind, index: 0, value }));
    }
    details.sort_unstable_by_key(|detail| (detail.key, detail.kind));
    details
}
