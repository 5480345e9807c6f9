//! Stacks and processes of a profile, from totals and the frames of each place. Pure.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::paths::Paths;
use crate::model::{
    Bytes, CgroupId, Frame, FrameId, ImageId, ImageStart, ImageUsage, Node, Partition, ProcessImage, ProcessProfile,
    ReclaimKind, StackEnd, StackProfile, StackUsage, StallStats, Tick,
};

/// Stacks with names, and the processes that they belong to.
#[derive(Debug)]
pub(super) struct NamedStacks {
    pub(super) processes: Vec<ProcessProfile>,
    pub(super) stacks: Vec<StackProfile>,
    pub(super) frames: Vec<Frame>,
    /// Stalls of all images by control group.
    pub(super) stalls: Vec<(Option<CgroupId>, BTreeMap<ReclaimKind, StallStats>)>,
}

/// Names the stacks of the images that were traced during `window`; `frames` are those of each place of `paths`, outermost
/// first.
pub(super) fn name_stacks(
    books: BTreeMap<ImageId, ImageUsage>,
    images: &BTreeMap<ImageId, ProcessImage>,
    paths: &Paths<'_>,
    frames: Vec<Box<[Frame]>>,
    window: &Range<Tick>,
) -> NamedStacks {
    let (frames, of_places) = numbered(frames);
    let mut sequences = Sequences { paths, of_places, known: FxHashMap::default() };
    let mut ends = paths.stacks().iter();
    let mut processes = Vec::with_capacity(books.len());
    // Room for all of them, which costs nothing until it is used: growing would hold them twice.
    let mut stacks = Vec::with_capacity(paths.stacks().len());
    let unknown = ProcessImage::default();
    let stalls = stalls_by_cgroup(&books);
    for (number, (id, usage)) in books.into_iter().enumerate() {
        processes.push(process(id, &usage, images.get(&id).unwrap_or(&unknown), window));
        // Stacks of one process that differ only in what else it had mapped, or in where that lay, are one here.
        let mut joined: BTreeMap<Site, (StackUsage, Option<Bytes>)> = BTreeMap::new();
        for ((key, stack_usage), &(path, end)) in usage.by_stack.iter().zip(ends.by_ref()) {
            let site = Site { frames: sequences.of(path), end, part: key.part };
            let (sum, at_peak) = joined.entry(site).or_default();
            sum.usage += stack_usage.usage;
            sum.major_faults += stack_usage.major_faults;
            sum.resident.0 += stack_usage.resident.0;
            sum.variance += stack_usage.variance;
            if usage.peak.is_some() {
                *at_peak = Some(Bytes(at_peak.unwrap_or_default().0.wrapping_add(stack_usage.at_peak.0)));
            }
        }
        stacks.extend(joined.into_iter().map(|(site, (sum, at_peak))| StackProfile {
            process: number,
            part: site.part,
            frames: site.frames,
            end: site.end,
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
    books: &BTreeMap<ImageId, ImageUsage>,
) -> Vec<(Option<CgroupId>, BTreeMap<ReclaimKind, StallStats>)> {
    let mut groups: BTreeMap<Option<CgroupId>, Vec<(ReclaimKind, &StallStats)>> = BTreeMap::new();
    for (key, book) in books.values().flat_map(|usage| &usage.stalls) {
        groups.entry(key.group).or_default().push((key.work, book));
    }
    groups.into_iter().map(|(id, books)| (id, StallStats::by_kind(books))).collect()
}

/// The frames, each once and in their own order, so that the order of stacks is independent of where things happened to lie
/// in memory; and those of each place by their numbers.
fn numbered(frames: Vec<Box<[Frame]>>) -> (Vec<Frame>, Vec<Box<[FrameId]>>) {
    let mut of_places: Vec<Box<[FrameId]>> =
        frames.iter().map(|frames| vec![FrameId::new(0); frames.len()].into()).collect();
    let at_place = |(place, frames): (usize, Box<[Frame]>)| {
        frames.into_iter().enumerate().map(move |(position, frame)| (frame, place, position))
    };
    let mut all: Vec<_> = frames.into_iter().enumerate().flat_map(at_place).collect();
    all.sort_unstable();
    let mut distinct: Vec<Frame> = Vec::new();
    for (frame, place, position) in all {
        if distinct.last() != Some(&frame) {
            distinct.push(frame);
        }
        of_places[place][position] = FrameId::new(distinct.len() - 1);
    }
    (distinct, of_places)
}

/// The frames of stacks, root first, each sequence once.
struct Sequences<'p> {
    paths: &'p Paths<'p>,
    of_places: Vec<Box<[FrameId]>>,
    known: FxHashMap<Node, Arc<[FrameId]>>,
}

impl Sequences<'_> {
    fn of(&mut self, path: Node) -> Arc<[FrameId]> {
        let make = || self.paths.places(path).into_iter().flat_map(|place| &self.of_places[place]).copied().collect();
        Arc::clone(self.known.entry(path).or_insert_with(make))
    }
}

/// What the stacks of a process are told apart by, and ordered by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    frames: Arc<[FrameId]>,
    end: StackEnd,
    part: Partition,
}

fn process(id: ImageId, usage: &ImageUsage, image: &ProcessImage, window: &Range<Tick>) -> ProcessProfile {
    let comm = if image.comm.is_empty() { "?" } else { &image.comm };
    // A copy that was made while everything was traced has no blocks of its own from before.
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
        peak: usage.peak,
        user: image.user.clone(),
        cgroup: image.cgroup.clone(),
        threads: image.threads,
        thread_names: image.thread_names.clone(),
        traced: traced(image, window),
        // Of all control groups together.
        stalls: StallStats::by_kind(usage.stalls.iter().map(|(key, book)| (key.work, book))),
        resident: usage.resident.clone(),
        faults: usage.counts.faults(),
        peak_rss: usage.counts.peak_rss(),
        ..ProcessProfile::new(id.pid, comm)
    }
}

/// How long the image was there during `window`.
fn traced(image: &ProcessImage, window: &Range<Tick>) -> Duration {
    let start = image.start.tick().map_or(window.start, |tick| tick.max(window.start));
    let end = image.ended.map_or(window.end, |tick| tick.min(window.end));
    end.since_start().saturating_sub(start.since_start())
}

#[cfg(test)]
mod tests;
