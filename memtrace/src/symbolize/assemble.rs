//! The profile from a snapshot and the frames that its addresses stand for. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::{
    AbsAddr, Bytes, Frame, FrameId, Image, ImageId, ImageUsage, ProcessProfile, Profile, Snapshot, StackEnd,
    StackProfile, Usage,
};

/// For each image of a snapshot, the frames that each address of its stacks stands for, outermost first.
pub(super) type FramesByAddress<'a> = BTreeMap<ImageId, HashMap<AbsAddr, &'a [Frame]>>;

/// Every address in the stacks of an image.
pub(super) fn addresses(snapshot: &Snapshot, image: &ImageUsage) -> BTreeSet<AbsAddr> {
    let stacks = image.by_stack.keys().filter_map(|id| snapshot.stacks.get(id));
    stacks.flat_map(|stack| stack.frames.iter().copied()).collect()
}

/// Writes the profile. What only the session knows (duration, cost, filters) is left empty.
pub(super) fn profile(
    snapshot: &Snapshot,
    images: &BTreeMap<ImageId, Image>,
    frames_by_address: &FramesByAddress<'_>,
) -> Profile {
    // Numbered in their own order, frames make the order of stacks independent of where things happened to lie in memory.
    let frames: BTreeSet<&Frame> = frames_by_address.values().flat_map(HashMap::values).copied().flatten().collect();
    let ids: HashMap<&Frame, FrameId> = frames.iter().enumerate().map(|(id, frame)| (*frame, FrameId(id))).collect();

    let mut processes = Vec::with_capacity(snapshot.images.len());
    let mut joined: BTreeMap<Site, (Usage, Option<Bytes>)> = BTreeMap::new();
    for (number, (id, usage)) in snapshot.images.iter().enumerate() {
        processes.push(process(*id, usage, images.get(id)));
        let ids_by_address: HashMap<AbsAddr, Vec<FrameId>> = frames_by_address
            .get(id)
            .into_iter()
            .flatten()
            .map(|(address, frames)| (*address, frames.iter().filter_map(|frame| ids.get(frame).copied()).collect()))
            .collect();
        for (stack, stack_usage) in &usage.by_stack {
            let addresses = snapshot.stacks.get(stack).map_or(&[][..], |stack| &stack.frames);
            let frames = addresses.iter().rev().filter_map(|address| ids_by_address.get(address)).flatten().copied();
            let site = Site { process: number, frames: frames.collect(), end: snapshot.end_of(*stack) };
            let (sum, at_peak) = joined.entry(site).or_default();
            *sum += stack_usage.usage;
            if usage.peak.is_some() {
                *at_peak = Some(Bytes(at_peak.unwrap_or_default().0.wrapping_add(stack_usage.at_peak.0)));
            }
        }
    }
    let stacks = joined.into_iter().map(|(site, (usage, at_peak))| StackProfile {
        process: site.process,
        frames: site.frames,
        end: site.end,
        usage,
        at_peak,
    });
    Profile {
        processes,
        stacks: stacks.collect(),
        frames: frames.into_iter().cloned().collect(),
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
}

fn process(id: ImageId, usage: &ImageUsage, image: Option<&Image>) -> ProcessProfile {
    let comm = image.map(|image| image.comm.clone()).filter(|comm| !comm.is_empty());
    ProcessProfile {
        pid: id.pid,
        comm: comm.unwrap_or_else(|| String::from("?")),
        exe: image.and_then(|image| image.exe.clone()),
        ended: usage.ended,
        total: usage.total,
        discarded: usage.discarded,
        unmatched_frees: usage.unmatched_frees,
        peak: usage.peak,
    }
}

#[cfg(test)]
mod tests;
