//! Stacks and processes of a profile, from totals by call path and the frames of each call. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrace_model::{
    EventClass, FrameId, ImageId, LiveChanges, Merged, Node, Part, ProcessProfile, StackEnd, StackKey, StackProfile,
    Tree,
};
use rustc_hash::FxHashMap;

use super::call_paths::CallPaths;
use super::frames_of_calls::FramesOfCalls;
use super::path_totals::{PathKey, PathTotals, PathUsage};

/// Changes of live memory over time, by event class, running image and stack.
pub type LiveChangesByStack = BTreeMap<(EventClass, ImageId), FxHashMap<StackKey, LiveChanges>>;

/// Changes of live memory over time, by call path.
pub(super) type ChangesByPath = FxHashMap<PathKey, LiveChanges>;

/// A process, or a group of processes, with its totals by call path.
#[derive(Clone, Debug)]
pub(super) struct ReportProcess {
    pub(super) process: ProcessProfile,
    pub(super) totals: PathTotals,
    /// Changes of live memory over time. Empty if the process has ended before the moment of the report, or if its
    /// changes are not recorded.
    pub(super) live_changes: ChangesByPath,
}

impl ReportProcess {
    /// Returns a process without changes over time.
    pub(super) fn new(process: ProcessProfile, totals: PathTotals) -> Self {
        Self { process, totals, live_changes: ChangesByPath::default() }
    }
}

/// Converts the totals of each process by call path to stacks with frames. `frames`: frames of each call in
/// `paths`.
pub(super) fn name_stacks(
    processes: Vec<ReportProcess>,
    paths: &CallPaths,
    frames: &FramesOfCalls,
) -> (Vec<ProcessProfile>, Vec<StackProfile>) {
    let mut sequences = FrameSequences::new(paths, frames);
    // The capacity is enough for all stacks. Growth would need memory for two copies of the list, and untouched
    // memory costs nothing.
    let mut stacks = Vec::with_capacity(processes.iter().map(|process| process.totals.len()).sum());
    let mut profiles = Vec::with_capacity(processes.len());
    for (number, ReportProcess { process, totals, live_changes }) in processes.into_iter().enumerate() {
        let mut groups: Vec<_> = totals.keys().enumerate().map(|(entry, key)| (sequences.group(key), entry)).collect();
        groups.sort_unstable();
        // Merges the stacks of one process with equal frames. Such stacks differ only in offsets within a source
        // line.
        let (mut last, mut stack_of_entry) = (None, vec![0; groups.len()]);
        for (group, entry) in groups {
            if last.replace(group) != Some(group) {
                let frames = sequences.get(group.frames);
                stacks.push(StackProfile::new(number, group.part, frames, group.end));
            }
            stack_of_entry[entry] = stacks.len() - 1;
        }
        for ((key, PathUsage { usage, histograms }), stack) in totals.into_iter().zip(stack_of_entry) {
            let stack: &mut StackProfile = &mut stacks[stack];
            stack.usage += usage;
            stack.histograms.add(&histograms);
            if let Some(more) = live_changes.get(&key) {
                stack.live_changes.merge(more);
            }
        }
        profiles.push(process);
    }
    (profiles, stacks)
}

/// Frames of each call path, root first.
struct FrameSequences {
    tree: Tree<FrameId>,
    /// Frame sequence of each path, as a node of `tree`.
    of_paths: Merged,
    /// Position of each sequence in the sorted list of all sequences, by the number of the sequence's node.
    /// Comparing the sequences themselves would take a quarter of the time of a report with a million stacks.
    positions: Vec<u32>,
    /// Sequences that [`Self::get`] has returned, each stored once.
    known: FxHashMap<Node, Arc<[FrameId]>>,
}

impl FrameSequences {
    fn new(paths: &CallPaths, frames: &FramesOfCalls) -> Self {
        let mut tree = Tree::default();
        let of_paths = paths.convert(|callers, call| {
            // The numbers of paths and of their frames are bounded far below 2^32.
            let push = |sequence, frame: &FrameId| tree.push(sequence, *frame).unwrap_or(sequence);
            frames.of(call).iter().fold(callers, push)
        });
        let positions = tree.positions();
        Self { tree, of_paths, positions, known: FxHashMap::default() }
    }

    fn group(&self, PathKey { path, end, part }: PathKey) -> StackGroup {
        let frames = self.of_paths.of(path);
        StackGroup { position: self.positions[frames.number() as usize], end, part, frames }
    }

    fn get(&mut self, sequence: Node) -> Arc<[FrameId]> {
        let make = || {
            let mut frames: Vec<_> = self.tree.to_root(sequence).collect();
            frames.reverse();
            frames.into()
        };
        Arc::clone(self.known.entry(sequence).or_insert_with(make))
    }
}

/// Grouping and sort key of a process's stacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StackGroup {
    /// Position of the frame sequence among the sorted ones.
    position: u32,
    end: StackEnd,
    part: Part,
    frames: Node,
}

#[cfg(test)]
mod tests;
