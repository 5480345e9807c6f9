//! Stacks and processes of a profile, from totals by call path and the frames of each call. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::call_paths::CallPaths;
use super::frames_of_calls::FramesOfCalls;
use super::path_totals::{PathKey, PathTotals, PathUsage};
use crate::model::{
    EventClass, FrameId, ImageId, LiveChanges, Node, Part, ProcessProfile, StackEnd, StackKey, StackProfile,
};

/// Changes of live memory of running images over the parts of a run.
pub type LiveChangesByStack = BTreeMap<(EventClass, ImageId), FxHashMap<StackKey, LiveChanges>>;

/// Changes of live memory by call path.
pub(super) type ChangesByPath = FxHashMap<PathKey, LiveChanges>;

/// A process, or a group of them, with the totals of its call paths.
#[derive(Clone, Debug)]
pub(super) struct ReportProcess {
    pub(super) process: ProcessProfile,
    pub(super) totals: PathTotals,
    /// Empty unless the process runs at the moment of a report, and its changes are recorded.
    pub(super) live_changes: ChangesByPath,
}

impl ReportProcess {
    /// Returns a process without changes over time.
    pub(super) fn new(process: ProcessProfile, totals: PathTotals) -> Self {
        Self { process, totals, live_changes: ChangesByPath::default() }
    }
}

/// Converts the totals of each process by call path to stacks with frames. `frames` are those of each call of `paths`.
pub(super) fn name_stacks(
    processes: Vec<ReportProcess>,
    paths: &CallPaths,
    frames: &FramesOfCalls,
) -> (Vec<ProcessProfile>, Vec<StackProfile>) {
    let mut sequences = FrameSequences { paths, frames, by_path: FxHashMap::default() };
    // Reserved for all of them: growth would hold them twice, and untouched capacity costs nothing.
    let mut stacks = Vec::with_capacity(processes.iter().map(|process| process.totals.len()).sum());
    let mut profiles = Vec::with_capacity(processes.len());
    for (number, ReportProcess { process, totals, live_changes }) in processes.into_iter().enumerate() {
        // Stacks of one process with the same frames are merged: they differ only in offsets within a line.
        let mut merged: BTreeMap<StackGroup, (PathUsage, LiveChanges)> = BTreeMap::new();
        for (key, usage) in totals.iter() {
            let group = StackGroup { frames: sequences.get(key.path), end: key.end, part: key.part };
            let (sum, changes) = merged.entry(group).or_default();
            sum.add(&usage);
            if let Some(more) = live_changes.get(&key) {
                changes.merge(more);
            }
        }
        drop(totals);
        stacks.extend(merged.into_iter().map(|(group, (PathUsage { usage, histograms }, live_changes))| {
            StackProfile {
                process: number,
                part: group.part,
                frames: group.frames,
                end: group.end,
                label: None,
                usage,
                histograms,
                live_changes,
            }
        }));
        profiles.push(process);
    }
    (profiles, stacks)
}

/// Frame sequences of paths, root first, each stored once.
struct FrameSequences<'p> {
    paths: &'p CallPaths,
    frames: &'p FramesOfCalls,
    by_path: FxHashMap<Node, Arc<[FrameId]>>,
}

impl FrameSequences<'_> {
    fn get(&mut self, path: Node) -> Arc<[FrameId]> {
        let make = || self.paths.calls(path).into_iter().flat_map(|call| self.frames.of(call)).copied().collect();
        Arc::clone(self.by_path.entry(path).or_insert_with(make))
    }
}

/// Grouping and sort key of a process's stacks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StackGroup {
    frames: Arc<[FrameId]>,
    end: StackEnd,
    part: Part,
}

#[cfg(test)]
mod tests;
