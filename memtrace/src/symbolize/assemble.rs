//! Stacks and processes of a profile, from totals and the frames of each call. Pure.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::call_paths::CallPaths;
use crate::model::{
    Bytes, CgroupId, Frame, FrameId, ImageEnd, ImageId, ImageStart, ImageUsage, Node, Partition, ProcessImage,
    ProcessProfile, ReclaimKind, StackEnd, StackProfile, StackUsage, StallStats, Tick,
};

/// Symbolized stacks and their processes.
#[derive(Debug, Default)]
pub(super) struct NamedStacks {
    pub(super) processes: Vec<ProcessProfile>,
    pub(super) stacks: Vec<StackProfile>,
    pub(super) frames: Vec<Frame>,
    /// Stalls of all images by control group.
    pub(super) stalls: Vec<(Option<CgroupId>, BTreeMap<ReclaimKind, StallStats>)>,
}

/// Converts the stacks of images that were traced during `window`. `frames` are those of each call of `paths`,
/// outermost first.
pub(super) fn name_stacks(
    usages: BTreeMap<ImageId, ImageUsage>,
    ends: &BTreeMap<ImageId, (ImageEnd, Tick)>,
    images: &BTreeMap<ImageId, ProcessImage>,
    paths: &CallPaths<'_>,
    frames: Vec<Box<[Frame]>>,
    window: &Range<Tick>,
) -> NamedStacks {
    let (frames, frames_of_calls) = number_frames(frames);
    let mut sequences = FrameSequences { paths, frames_of_calls, by_path: FxHashMap::default() };
    let mut ends_of_walks = paths.stacks().iter();
    let mut processes = Vec::with_capacity(usages.len());
    // Reserved for all of them: growth would hold them twice, and untouched capacity costs nothing.
    let mut stacks = Vec::with_capacity(paths.stacks().len());
    let unknown = ProcessImage::default();
    let stalls = stalls_by_cgroup(&usages);
    for (number, (id, usage)) in usages.into_iter().enumerate() {
        let end = ends.get(&id).map(|&(_, at)| at.since_start().saturating_sub(window.start.since_start()));
        let process = process(id, &usage, images.get(&id).unwrap_or(&unknown), window);
        processes.push(ProcessProfile { ended_after: end.filter(|_| usage.ended.is_some()), ..process });
        // Stacks of one process with the same frames are merged: they differ only in load addresses.
        let mut merged: BTreeMap<StackGroup, (StackUsage, Option<Bytes>)> = BTreeMap::new();
        for ((key, stack_usage), &(path, end)) in usage.by_stack.iter().zip(ends_of_walks.by_ref()) {
            let group = StackGroup { frames: sequences.get(path), end, part: key.part };
            let (sum, at_peak) = merged.entry(group).or_default();
            sum.usage += stack_usage.usage;
            sum.major_faults += stack_usage.major_faults;
            sum.resident.0 += stack_usage.resident.0;
            sum.variance += stack_usage.variance;
            if usage.peak.is_some() {
                *at_peak = Some(Bytes(at_peak.unwrap_or_default().0.wrapping_add(stack_usage.at_peak.0)));
            }
        }
        stacks.extend(merged.into_iter().map(|(group, (sum, at_peak))| StackProfile {
            process: number,
            part: group.part,
            frames: group.frames,
            end: group.end,
            merged: 0,
            usage: sum.usage,
            at_peak,
            major_faults: sum.major_faults,
            variance: sum.variance,
            resident: sum.resident,
        }));
    }
    NamedStacks { processes, stacks, frames, stalls }
}

fn stalls_by_cgroup(
    usages: &BTreeMap<ImageId, ImageUsage>,
) -> Vec<(Option<CgroupId>, BTreeMap<ReclaimKind, StallStats>)> {
    let mut groups: BTreeMap<Option<CgroupId>, Vec<(ReclaimKind, &StallStats)>> = BTreeMap::new();
    for (key, stalls) in usages.values().flat_map(|usage| &usage.stalls) {
        groups.entry(key.group).or_default().push((key.work, stalls));
    }
    groups.into_iter().map(|(id, stalls)| (id, StallStats::by_kind(stalls))).collect()
}

/// Returns the distinct frames, and the frames of each call as indices. Frames are sorted, so that the order of stacks
/// does not depend on load addresses.
fn number_frames(frames: Vec<Box<[Frame]>>) -> (Vec<Frame>, Vec<Box<[FrameId]>>) {
    let mut frames_of_calls: Vec<Box<[FrameId]>> =
        frames.iter().map(|frames| vec![FrameId::new(0); frames.len()].into()).collect();
    let with_position = |(call, frames): (usize, Box<[Frame]>)| {
        frames.into_iter().enumerate().map(move |(position, frame)| (frame, call, position))
    };
    let mut all: Vec<_> = frames.into_iter().enumerate().flat_map(with_position).collect();
    all.sort_unstable();
    let mut distinct: Vec<Frame> = Vec::new();
    for (frame, call, position) in all {
        if distinct.last() != Some(&frame) {
            distinct.push(frame);
        }
        frames_of_calls[call][position] = FrameId::new(distinct.len() - 1);
    }
    (distinct, frames_of_calls)
}

/// Frame sequences of paths, root first, each stored once.
struct FrameSequences<'p> {
    paths: &'p CallPaths<'p>,
    frames_of_calls: Vec<Box<[FrameId]>>,
    by_path: FxHashMap<Node, Arc<[FrameId]>>,
}

impl FrameSequences<'_> {
    fn get(&mut self, path: Node) -> Arc<[FrameId]> {
        let make =
            || self.paths.calls(path).into_iter().flat_map(|call| &self.frames_of_calls[call]).copied().collect();
        Arc::clone(self.by_path.entry(path).or_insert_with(make))
    }
}

/// Grouping and sort key of a process's stacks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StackGroup {
    frames: Arc<[FrameId]>,
    end: StackEnd,
    part: Partition,
}

fn process(id: ImageId, usage: &ImageUsage, image: &ProcessImage, window: &Range<Tick>) -> ProcessProfile {
    let comm = if image.comm.raw().is_empty() { "?".into() } else { image.comm.clone() };
    // A process that was forked during tracing has no untraced blocks of its own.
    let (unmatched_frees, inherited_frees) = match image.start {
        ImageStart::Fork(tick) if tick >= window.start => (0, usage.unmatched_frees),
        ImageStart::Fork(_) | ImageStart::Unseen | ImageStart::Exec(_) => (usage.unmatched_frees, 0),
    };
    ProcessProfile {
        exe: image.exe.clone(),
        ended: usage.ended,
        total: usage.total,
        discarded: usage.discarded,
        unmatched_frees,
        inherited_frees,
        repeated_frees: usage.repeated_frees,
        peak: usage.peak,
        user: image.user.clone(),
        cgroup: image.cgroup.clone(),
        threads: image.threads,
        thread_names: image.thread_names.clone(),
        traced: traced(image, window),
        // Sum over all cgroups.
        stalls: StallStats::by_kind(usage.stalls.iter().map(|(key, stalls)| (key.work, stalls))),
        resident: usage.resident.clone(),
        faults: usage.counts.faults(),
        peak_rss: usage.counts.peak_rss(),
        ..ProcessProfile::new(id.pid, comm)
    }
}

/// Returns the time that the image ran during `window`.
fn traced(image: &ProcessImage, window: &Range<Tick>) -> Duration {
    let start = image.start.tick().map_or(window.start, |tick| tick.max(window.start));
    let end = image.ended.map_or(window.end, |(_, tick)| tick.min(window.end));
    end.since_start().saturating_sub(start.since_start())
}

#[cfg(test)]
mod tests;
