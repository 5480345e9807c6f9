//! The profile from a snapshot and the frames that its addresses stand for. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use super::spot::Spot;
use crate::model::{
    Beginning, Bytes, Frame, FrameId, Image, ImageId, ImageUsage, Part, ProcessProfile, Profile, Snapshot, Stack,
    StackEnd, StackProfile, StackUsage, Tick,
};

/// For each image of a snapshot, the frames that each spot of its stacks stands for, outermost first.
pub(super) type FramesBySpot<'a> = BTreeMap<ImageId, HashMap<Spot, &'a [Frame]>>;

/// Every spot in the stacks of an image, of which `usage` has the books.
pub(super) fn spots(snapshot: &Snapshot, usage: &ImageUsage, image: &Image) -> BTreeSet<Spot> {
    let stacks = usage.by_stack.keys().filter_map(|key| snapshot.stacks.get(&key.stack));
    stacks.flat_map(|stack| of_stack(stack, image)).collect()
}

/// Root first.
fn of_stack(stack: &Stack, image: &Image) -> impl Iterator<Item = Spot> {
    stack.frames.iter().rev().map(|&frame| Spot::of(image, frame, stack.taken))
}

/// Writes the profile of what was traced during `window`. What only the session knows (duration, cost, filters) is left
/// empty.
pub(super) fn profile(
    snapshot: &Snapshot,
    images: &BTreeMap<ImageId, Image>,
    frames_by_spot: &FramesBySpot<'_>,
    window: &Range<Tick>,
) -> Profile {
    // Numbered in their own order, frames make the order of stacks independent of where things happened to lie in memory.
    let frames: BTreeSet<&Frame> = frames_by_spot.values().flat_map(HashMap::values).copied().flatten().collect();
    let ids: HashMap<&Frame, FrameId> = frames.iter().enumerate().map(|(id, frame)| (*frame, FrameId(id))).collect();

    let unknown = Image::default();
    let mut processes = Vec::with_capacity(snapshot.images.len());
    let mut joined: BTreeMap<Site, (StackUsage, Option<Bytes>)> = BTreeMap::new();
    for (number, (id, usage)) in snapshot.images.iter().enumerate() {
        let image = images.get(id).unwrap_or(&unknown);
        processes.push(process(*id, usage, image, window));
        let ids_by_spot: HashMap<Spot, Vec<FrameId>> = frames_by_spot
            .get(id)
            .into_iter()
            .flatten()
            .map(|(spot, frames)| (*spot, frames.iter().filter_map(|frame| ids.get(frame).copied()).collect()))
            .collect();
        for (key, stack_usage) in &usage.by_stack {
            let spots = snapshot.stacks.get(&key.stack).into_iter().flat_map(|stack| of_stack(stack, image));
            let frames = spots.filter_map(|spot| ids_by_spot.get(&spot)).flatten().copied().collect();
            // Stacks of one process that differ only in what else it had mapped, or in where that lay, are one here.
            let site = Site { process: number, frames, end: snapshot.end_of(key.stack), part: key.part };
            let (sum, at_peak) = joined.entry(site).or_default();
            sum.usage += stack_usage.usage;
            sum.major_faults += stack_usage.major_faults;
            sum.resident.0 += stack_usage.resident.0;
            sum.live_variance = sum.live_variance.saturating_add(stack_usage.live_variance);
            if usage.peak.is_some() {
                *at_peak = Some(Bytes(at_peak.unwrap_or_default().0.wrapping_add(stack_usage.at_peak.0)));
            }
        }
    }
    let stacks = joined.into_iter().map(|(site, (sum, at_peak))| StackProfile {
        process: site.process,
        part: site.part,
        frames: site.frames,
        end: site.end,
        usage: sum.usage,
        at_peak,
        major_faults: sum.major_faults,
        live_variance: sum.live_variance,
        resident: sum.resident,
    });
    Profile {
        processes,
        stacks: stacks.collect(),
        frames: frames.into_iter().cloned().collect(),
        oom_kills: snapshot.oom_kills.iter().cloned().collect(),
        losses: snapshot.losses.clone(),
        ..Profile::default()
    }
}

/// What stacks are told apart by, and ordered by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    process: usize,
    frames: Vec<FrameId>,
    end: StackEnd,
    part: Part,
}

fn process(id: ImageId, usage: &ImageUsage, image: &Image, window: &Range<Tick>) -> ProcessProfile {
    let comm = if image.comm.is_empty() { "?" } else { &image.comm };
    // A copy that was made while everything was traced has no blocks of its own from before.
    let (unmatched_frees, inherited_frees) = match image.beginning {
        Beginning::Fork(tick) if tick >= window.start => (0, usage.unmatched_frees),
        Beginning::Fork(_) | Beginning::Unseen | Beginning::Exec(_) => (usage.unmatched_frees, 0),
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
        stalls: usage.stalls.clone(),
        resident: usage.resident.clone(),
        ..ProcessProfile::new(id.pid, comm)
    }
}

/// How long the image was there during `window`.
fn traced(image: &Image, window: &Range<Tick>) -> Duration {
    let start = image.beginning.tick().map_or(window.start, |tick| tick.max(window.start));
    let end = image.ended.map_or(window.end, |tick| tick.min(window.end));
    end.since_start().saturating_sub(start.since_start())
}

#[cfg(test)]
mod tests;
