//! Reports of bounded size: the smallest stacks and processes are merged into remainders, without a change of any
//! sum.

mod order;
mod processes;
mod size;

use std::borrow::Cow;

use memtrace_model::{FrameId, LabelId, Part, Profile, ProfileRows, Quantity, StackEnd, StackProfile};
use rustc_hash::{FxHashMap, FxHashSet};

use self::processes::RowsOfProcesses;
use self::size::Sizes;
use crate::Options;
use crate::estimate::has_samples;

/// Bounds of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum size of the JSON in bytes, as estimated by [`Sizes`].
    pub(super) bytes: usize,
    /// Maximum number of processes with a row of their own. Rows of remainders are not included.
    pub(super) processes: usize,
}

impl Limits {
    /// Bounds for a JSON file of at most 40 MiB, not counting `timeline` and `activity`. The estimated sizes are too
    /// large rather than too small.
    pub(super) const FILE: Self = Self { bytes: 40 << 20, processes: 6000 };
    /// Bounds for a picture. They are larger, because the writer of pictures then merges stacks that are too small to
    /// see. It merges them below their common callers.
    pub(super) const PICTURE: Self = Self { bytes: 128 << 20, processes: 6000 };
}

/// Returns a profile within `limits`, with the largest stacks and the largest processes. The other stacks are summed by
/// process, part, stack end and label, with exact stacks and estimates in separate sums. The other processes are merged into
/// one ended and one running process. If `--by` is the short name, user or cgroup, each name, user or cgroup has merged
/// processes of its own.
pub(super) fn bounded<'a>(profile: &'a Profile, options: &Options, limits: Limits) -> Cow<'a, Profile> {
    let rows = processes::merged(profile, options, limits.processes);
    let sizes = Sizes::new(profile);
    if rows.is_none() && sizes.total() <= limits.bytes {
        return Cow::Borrowed(profile);
    }
    let rows = rows.unwrap_or_else(|| RowsOfProcesses::unmerged(profile));
    let keys: Vec<_> = profile.stacks.iter().map(|stack| remainder_of(profile, &rows, stack)).collect();
    let kept = largest(profile, &rows, &keys, &sizes, limits.bytes);
    let numbers = frame_numbers(profile, &kept);
    let mut stacks = Stacks::default();
    for ((stack, key), kept) in profile.stacks.iter().zip(keys).zip(kept) {
        let frames = kept.then(|| stack.frames.iter().map(|frame| numbers[frame.index()]).collect());
        stacks.add(key, frames, stack);
    }
    let used = |(frame, number): (&_, &FrameId)| (*number != UNUSED).then(|| Clone::clone(frame));
    let frames = profile.frames.iter().zip(&numbers).filter_map(used).collect();
    let rows = ProfileRows {
        processes: rows.processes,
        stacks: stacks.into_sorted(),
        frames,
        labels: profile.labels.clone(),
        oom_kills: profile.oom_kills.clone(),
        cgroups: profile.cgroups.clone(),
        losses: profile.losses.clone(),
    };
    Cow::Owned(Profile::new(profile.run.clone(), Vec::new(), rows, |_| None))
}

/// ID of a frame that only merged stacks contain.
const UNUSED: FrameId = FrameId::new(u32::MAX as usize);

/// Key of a remainder: row of the process, part, stack end and label, and true for stacks with samples. The end keeps the
/// distribution of ends, the label keeps the sums of groups, and the samples keep the errors of sums.
type Remainder = (usize, Part, StackEnd, Option<LabelId>, bool);

fn remainder_of(profile: &Profile, rows: &RowsOfProcesses, stack: &StackProfile) -> Remainder {
    let process = rows.row_of[stack.process];
    let is_merged = rows.processes[process].group.is_some() && profile.processes[stack.process].group.is_none();
    let part = if is_merged { stack.part.without_thread() } else { stack.part };
    (process, part, stack.end, stack.label, has_samples(&stack.usage))
}

/// Returns a flag for each stack: true for the largest stacks that fit into `bytes` together with the rest of the
/// report.
fn largest(profile: &Profile, rows: &RowsOfProcesses, keys: &[Remainder], sizes: &Sizes, bytes: usize) -> Vec<bool> {
    let remainders: FxHashSet<Remainder> = keys.iter().copied().collect();
    let mut used = rows.processes.iter().map(|process| sizes.process(process)).sum::<usize>();
    used = used.saturating_add(sizes.stacks(remainders.len())).saturating_add(sizes.head(profile));

    let usages: Vec<_> = profile.stacks.iter().map(|stack| &stack.usage).collect();
    let ranked = order::largest_first(profile.run.class, &usages);
    let mut kept = vec![false; profile.stacks.len()];
    let mut has_frame = vec![false; profile.frames.len()];
    for index in ranked {
        let stack = &profile.stacks[index];
        // A sum of merged stacks is always added to its remainder.
        if stack.merged() > 0 {
            continue;
        }
        used = used.saturating_add(sizes.stack(stack));
        for frame in stack.frames.iter().map(|frame| frame.index()) {
            if !std::mem::replace(&mut has_frame[frame], true) {
                used = used.saturating_add(sizes.frame(&profile.frames[frame]));
            }
        }
        if used > bytes {
            break;
        }
        kept[index] = true;
    }
    kept
}

/// Returns the new ID of each frame, ordered as in the profile: consecutive IDs for frames of kept stacks, and
/// [`UNUSED`] for the others.
fn frame_numbers(profile: &Profile, kept: &[bool]) -> Vec<FrameId> {
    let mut numbers = vec![UNUSED; profile.frames.len()];
    for (stack, _) in profile.stacks.iter().zip(kept).filter(|(_, kept)| **kept) {
        stack.frames.iter().for_each(|frame| numbers[frame.index()] = FrameId::new(0));
    }
    let used = numbers.iter_mut().filter(|number| **number != UNUSED);
    used.enumerate().for_each(|(number, frame)| *frame = FrameId::new(number));
    numbers
}

/// Key of a stack of the bounded profile. The frames are `None` for a remainder.
type StackKey = (Remainder, Option<Box<[FrameId]>>);

/// Stacks of the bounded profile.
#[derive(Default)]
struct Stacks {
    all: Vec<StackProfile>,
    /// Indices in `all`.
    known: FxHashMap<StackKey, usize>,
}

impl Stacks {
    /// Adds a stack. `frames`: frames of a kept stack; `None` adds the stack to its remainder.
    fn add(&mut self, key: Remainder, frames: Option<Box<[FrameId]>>, stack: &StackProfile) {
        let (process, part, end, label, _) = key;
        let next = self.all.len();
        let is_kept = frames.is_some();
        let index = *self.known.entry((key, frames)).or_insert_with_key(|(_, frames)| {
            let frames = frames.as_deref().unwrap_or_default().into();
            self.all.push(StackProfile { label, ..StackProfile::new(process, part, frames, end) });
            next
        });
        let sum = &mut self.all[index];
        if !is_kept {
            sum.usage[Quantity::MergedStacks] += u64::from(stack.merged() == 0);
        }
        sum.usage += stack.usage;
        sum.histograms.add(&stack.histograms);
        sum.live_changes.merge(&stack.live_changes);
    }

    /// Returns the stacks by process, with the remainders of a process after its stacks.
    fn into_sorted(self) -> Vec<StackProfile> {
        let mut all = self.all;
        all.sort_by_key(|stack| (stack.process, stack.merged() > 0));
        all
    }
}

#[cfg(test)]
mod tests;
