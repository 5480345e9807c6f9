//! Processes of a history with their totals.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{
    Amount, BlockHistograms, BlockQuantity, Bytes, Demotion, Epoch, EventClass, ImageId, ImageRusage, ImageUsage,
    LiveChanges, Log2, LossReason, MappingKind, OomKill, PageFaults, Part, Pid, ProcessImage, Quantities, Quantity,
    ResidentSet, Runtime, Rusage, StackEnd, Tick,
};

use super::options::ViewOptions;
use super::paths::RecordedCalls;
use crate::book::Book;
use crate::boundaries::Boundary;
use crate::file::Error;
use crate::interval::{DetailKind, ImageValue, RecordedImage};
use crate::merged_images::MergedImages;
use crate::moments::Moments;
use crate::name_table::FramesByObject;
use crate::reconcile::residency::{raise_touches, scale_stack};
use crate::recorded::{RecordedProcess, RecordedProcesses, RecordedStack};
use crate::totals::{StackTotal, Totals};
use crate::trend_parts::has_trends;

/// Process images by event class and ID.
type Processes = BTreeMap<(EventClass, ImageId), RecordedProcess>;

/// Reads the processes at a moment, or their changes between two moments. Also returns the recorded names of
/// functions.
pub(super) fn read(
    book: &dyn Book,
    moments: &Moments,
    calls: RecordedCalls,
    options: ViewOptions,
) -> Result<(RecordedProcesses, FramesByObject), Error> {
    let ViewOptions { keeps_parts, keep_ended, counts_growth, .. } = options;
    let (from, to) = (moments.from(), moments.to());
    let is_shown = |class| has_parts(class, book, moments, counts_growth);
    let bounds = moments.parts().bounds();
    let is_any_shown = !bounds.is_empty() && book.header().classes.iter().any(|&class| is_shown(class));
    let totals = if is_any_shown { book.totals_in_parts(bounds) } else { book.totals(from, to) };
    let Totals { stacks, images: values, stalls, losses } = totals?;
    let first_epoch = moments.first_epoch().filter(|_| counts_growth);
    let is_limited = book.header().older.is_some() && moments.is_at_end();
    let mut processes = Processes::new();
    let has_ages = moments.is_at_end();
    let mut lost: BTreeMap<EventClass, u64> = BTreeMap::new();
    for StackTotal { key, mut usage, details, live_changes } in stacks {
        if let Some(epoch) = first_epoch.filter(|_| has_epochs(key.class)) {
            remove_earlier(&mut usage, earlier(&details, epoch));
        }
        if is_limited && key.class == EventClass::Heap {
            limit_age(&mut usage, &details);
        }
        if key.end == StackEnd::FramesLost {
            let lost = lost.entry(key.class).or_default();
            *lost = lost.wrapping_add(usage.events());
        }
        let part = if keeps_parts { key.part } else { Part::WHOLE };
        // In a window, the change is negative if fewer stacks are merged at its end than at its start.
        usage[Quantity::MergedStacks] = usage[Quantity::MergedStacks].cast_signed().max(0).cast_unsigned();
        let mut histograms = histograms(&details);
        if !has_ages {
            histograms.clear(BlockQuantity::Age);
        }
        let live_changes = if is_shown(key.class) { live_changes } else { LiveChanges::default() };
        if usage.is_zero() && histograms.is_empty() && live_changes.as_slice().is_empty() {
            // The stack has only ages or old blocks, which count only at the end of the run.
            continue;
        }
        let path = calls.node(key.path);
        let mut stack = RecordedStack { path, end: key.end, part, usage, histograms, live_changes };
        if key.class.counts_pages() {
            let one_in = book.header().page_sample.max(1);
            scale_stack(&mut stack.usage, one_in.into());
            // A sum of merged stacks can be negative, because it cancels stacks of its group.
            if one_in > 1 && key.end != StackEnd::Merged {
                raise_touches(&mut stack.usage);
            }
        }
        processes.entry((key.class, key.image)).or_default().stacks.push(stack);
    }
    for ((image, class), values) in values {
        // A state from before the period does not show that the process ran during the period.
        if values.keys().all(|(kind, _)| kind.is_state()) && !processes.contains_key(&(class, image)) {
            continue;
        }
        let usage = &mut processes.entry((class, image)).or_default().usage;
        set_values(usage, &values);
        if !moments.is_window() {
            set_resident(usage, &values);
            usage.rss = resident_set(&values);
        }
    }
    for ((image, key), stats) in stalls {
        processes.entry((EventClass::Reclaim, image)).or_default().usage.stalls.insert(key, stats);
    }

    let images = book.images(to)?;
    let span = moments.times();
    let kills = book.oom_kills(to)?.into_iter();
    let kills: BTreeSet<OomKill> = kills.filter(|kill| kill.at.since_start() >= span.start).collect();
    let groups: Groups =
        images.iter().filter_map(|(&id, image)| Some((id, image.ended.and(image.member_of)?))).collect();
    let described: BTreeMap<ImageId, ProcessImage> =
        images.into_iter().map(|(id, image)| (id, process_image(image, &calls))).collect();
    let RecordedCalls { paths, frames, .. } = calls;
    let mut recorded = RecordedProcesses::new(paths, keep_ended, moments.window().start);
    for &class in &book.header().classes {
        let mut losses = losses.clone();
        losses.add(LossReason::StackFramesLost, lost.get(&class).copied().unwrap_or_default());
        recorded.add_class(class, kills.clone(), losses);
    }
    let mut merged = book.merged_images(from, to)?;
    for &(group, class) in merged.keys() {
        processes.entry((class, group)).or_default();
    }
    for (_, group) in processes.iter_mut().filter(|((_, id), _)| id.stands_for_group()) {
        group.stacks.iter().for_each(|stack| group.usage.total += stack.usage.additive());
    }
    let members = take_members(&mut processes, &groups, &merged);
    if moments.is_window() {
        let earlier = book.merged_images(Boundary::START, from)?;
        add_earlier(&mut merged, &earlier, &members, &processes);
    }
    add_groups(&mut recorded, &members, merged, &mut processes, &described);
    for ((class, id), mut process) in processes {
        process.image = described.get(&id).cloned().unwrap_or_default();
        // If a shard lost the event for the end of the image, the history lists the memory in that shard's totals as
        // live.
        if let Some((end, _)) = process.image.ended.filter(|_| !moments.is_window()) {
            for stack in &mut process.stacks {
                stack.usage.end(end, class);
            }
        }
        recorded.add(class, id, process);
    }
    Ok((recorded, frames))
}

/// Group of each ended image that is a member of a group.
type Groups = BTreeMap<ImageId, ImageId>;

/// A member of a group: its class, its ID, and the ID of the group.
type Member = (EventClass, ImageId, ImageId);

/// Merged members by group and class.
type MergedMembers = BTreeMap<(ImageId, EventClass), MergedImages>;

/// Removes the members of groups, and returns them with their totals. The merged stack of a member moves to its group.
/// The history of the group contains the actual stacks of its members, and a negative sum that cancels their merged
/// stacks.
fn take_members(processes: &mut Processes, groups: &Groups, merged: &MergedMembers) -> Vec<(Member, ImageUsage)> {
    let is_member = |(_, id): &(EventClass, ImageId), _: &mut RecordedProcess| groups.contains_key(id);
    let members: Vec<_> = processes.extract_if(.., is_member).collect();
    // In a window, a group can have changes of members that ended before the window. The member with the lowest ID
    // stands for all of them.
    let with_merged = merged.keys().map(|&(group, class)| (class, group));
    let with_changes: BTreeSet<_> =
        members.iter().filter_map(|((class, id), _)| Some((*class, *groups.get(id)?))).chain(with_merged).collect();
    // If a group has several members, the map keeps the last one, which has the lowest ID.
    let first_members: BTreeMap<ImageId, ImageId> = groups.iter().rev().map(|(&id, &group)| (group, id)).collect();
    let without_changes = processes.keys().filter(|key| !with_changes.contains(key)).filter_map(|(class, group)| {
        let member = group.stands_for_group().then(|| first_members.get(group)).flatten()?;
        Some(((*class, *member), RecordedProcess::default()))
    });
    let members: Vec<_> = without_changes.collect::<Vec<_>>().into_iter().chain(members).collect();
    let member = |((class, id), process): ((EventClass, ImageId), RecordedProcess)| {
        let group = *groups.get(&id)?;
        let RecordedProcess { stacks, mut usage, .. } = process;
        stacks.iter().for_each(|stack| usage.total += stack.usage.additive());
        processes.entry((class, group)).or_default().stacks.extend(stacks);
        Some(((class, id, group), usage))
    };
    members.into_iter().filter_map(member).collect()
}

/// Adds one merged member to each group that changes in the window and has no member in the window. All members of
/// such a group ended before the window, but a report shows only groups with at least one member.
fn add_earlier(
    merged: &mut MergedMembers,
    earlier: &MergedMembers,
    members: &[(Member, ImageUsage)],
    processes: &Processes,
) {
    let with_members: BTreeSet<_> = members.iter().map(|((class, _, group), _)| (*class, *group)).collect();
    for &(class, group) in processes.keys().filter(|key| !with_members.contains(key)) {
        if let Some(all) = earlier.get(&(group, class))
            && let Some((&end, _)) = all.ends.first_key_value()
        {
            let MergedImages { first_start, last_end, .. } = *all;
            let one = MergedImages { ends: [(end, 1)].into(), first_start, last_end, ..MergedImages::default() };
            merged.entry((group, class)).or_insert(one);
        }
    }
}

/// Adds the groups and their members.
fn add_groups(
    recorded: &mut RecordedProcesses,
    members: &[(Member, ImageUsage)],
    mut merged: MergedMembers,
    processes: &mut Processes,
    described: &BTreeMap<ImageId, ProcessImage>,
) {
    let is_group = |(_, id): &(EventClass, ImageId), _: &mut RecordedProcess| id.stands_for_group();
    for ((class, group), RecordedProcess { stacks, usage, .. }) in processes.extract_if(.., is_group) {
        let image = described.get(&group).cloned().unwrap_or_default();
        let merged = merged.remove(&(group, class)).unwrap_or_default();
        recorded.add_group(class, RecordedProcess { image, usage, stacks: with_one_sum(stacks) }, merged);
    }
    for ((class, id, group), usage) in members {
        let group = described.get(group).cloned().unwrap_or_default();
        let member = described.get(id).cloned().unwrap_or_default();
        // A group without an executable is identified by its name, so its members get this name.
        let comm = if group.exe.is_some() { member.comm } else { group.comm };
        let ProcessImage { exe, user, cgroup, mappings, .. } = group;
        let image = ProcessImage { comm, exe, user, cgroup, mappings, ..member };
        recorded.add_member(*class, *id, &image, usage.clone());
    }
}

/// Adds up the stacks with the end `merged`, and removes their sum if it is zero.
fn with_one_sum(mut stacks: Vec<RecordedStack>) -> Vec<RecordedStack> {
    let mut sum: Option<RecordedStack> = None;
    stacks.retain(|stack| {
        let is_merged = stack.end == StackEnd::Merged;
        if is_merged {
            match &mut sum {
                None => sum = Some(stack.clone()),
                Some(sum) => sum.usage += stack.usage,
            }
        }
        !is_merged
    });
    stacks.extend(sum.filter(|sum| !sum.usage.is_zero()));
    stacks
}

/// Returns true if live amounts of this class are recorded by the epoch of the allocation. Only blocks have epochs.
pub const fn has_epochs(class: EventClass) -> bool {
    matches!(class, EventClass::Heap)
}

/// Returns true if changes of live memory over time are shown for this class. They are recorded for blocks of any
/// age and epoch, so a report of old blocks or of epochs does not show them.
pub(super) fn has_parts(class: EventClass, book: &dyn Book, moments: &Moments, counts_growth: bool) -> bool {
    let is_limited = book.header().older.is_some() && moments.is_at_end() && class.probes_allocators();
    let is_of_epochs = counts_growth && has_epochs(class);
    has_trends(class) && !is_limited && !is_of_epochs
}

/// Returns the histograms of a stack.
fn histograms(details: &BTreeMap<(DetailKind, u32), u64>) -> BlockHistograms {
    let bucket = |(&(kind, index), &count): (&(DetailKind, u32), &u64)| {
        Some((kind.quantity()?, Log2::from_number(index)?, count))
    };
    let counts = details.iter().filter_map(bucket);
    let mut histograms: BlockHistograms = counts.collect();
    histograms.remove_negative();
    histograms
}

/// Returns the change of the live amount of blocks that were allocated before `epoch`.
fn earlier(details: &BTreeMap<(DetailKind, u32), u64>, epoch: Epoch) -> Amount {
    let sum = |kind| {
        let of_kind = details.range((kind, 0)..(kind, epoch.0));
        of_kind.fold(0_u64, |sum, (_, value)| sum.wrapping_add(*value))
    };
    Amount { bytes: Bytes(sum(DetailKind::EpochLiveBytes)), count: sum(DetailKind::EpochLiveCount) }
}

/// Removes the blocks that were allocated before the window from the changes of a stack. `change`: change of the live
/// amount of these blocks. Blocks held at exit are recorded without the epoch of their allocation: as many as possible
/// count as allocated in the window. A negative usage, which cancels a merged stack, is treated like the corresponding
/// positive one.
fn remove_earlier(usage: &mut Quantities, change: Amount) {
    if usage.alloc().count.cast_signed() < 0 {
        let negative = |usage| {
            let mut zero = Quantities::default();
            zero -= usage;
            zero
        };
        let mut positive = negative(*usage);
        remove_earlier(&mut positive, Amount::default() - change);
        *usage = negative(positive);
        return;
    }
    // The live amount is negative only if records were lost.
    let live = (usage.live() - change).increase();
    // Blocks that were allocated in the window and are not live any more.
    let ended = (usage.alloc() - live).increase();
    let exit = usage.exit().lesser(ended);
    let discarded = usage.discarded().lesser(ended - exit);
    *usage = usage
        .with_amount(Quantity::LiveBytes, live)
        .with_amount(Quantity::ExitBytes, exit)
        .with_amount(Quantity::DiscardedBytes, discarded)
        .with_free(ended - exit - discarded);
}

/// Replaces the amounts of live and held blocks of a stack by the amounts of blocks at least as old as `--older`.
fn limit_age(usage: &mut Quantities, details: &BTreeMap<(DetailKind, u32), u64>) {
    let value = |kind| details.get(&(kind, 0)).copied().unwrap_or_default();
    let amount = |bytes, count| Amount { bytes: Bytes(value(bytes)), count: value(count) };
    let free = usage.free();
    *usage = usage
        .with_amount(Quantity::LiveBytes, amount(DetailKind::OldLiveBytes, DetailKind::OldLiveCount))
        .with_amount(Quantity::ExitBytes, amount(DetailKind::OldExitBytes, DetailKind::OldExitCount))
        .with_free(free);
    for (kind, quantity) in DetailKind::OLD_SPREAD {
        usage[quantity] = value(kind);
    }
}

fn set_values(usage: &mut ImageUsage, values: &BTreeMap<(ImageValue, u32), u64>) {
    let known = |kind| values.get(&(kind, 0)).copied();
    let value = |kind| known(kind).unwrap_or_default();
    usage.unmatched_frees = value(ImageValue::UnmatchedFrees);
    usage.repeated_frees = value(ImageValue::RepeatedFrees);
    usage.unmatched_samples = value(ImageValue::UnmatchedSamples);
    usage.shares_memory_of = known(ImageValue::SharesMemoryOf).and_then(|pid| u32::try_from(pid).ok()).map(Pid);
    usage.demotion = Demotion {
        at: Tick(u32::try_from(value(ImageValue::DemotedAt)).unwrap_or(u32::MAX)),
        min_size: Bytes(value(ImageValue::DemotedSize)),
        dropped: Amount { bytes: Bytes(value(ImageValue::DroppedBytes)), count: value(ImageValue::DroppedCount) },
        frees: value(ImageValue::DemotedFrees),
    };
    usage.peak = known(ImageValue::Peak).map(Bytes);
    let (minor, major) = (known(ImageValue::MinorFaults), known(ImageValue::MajorFaults));
    let peak_rss = known(ImageValue::PeakRss);
    if minor.or(major).or(peak_rss).is_some() {
        let faults = PageFaults { minor: minor.unwrap_or_default(), major: major.unwrap_or_default() };
        let end = Rusage { faults, peak_rss: Bytes(peak_rss.unwrap_or_default()) };
        // If no number of faults is recorded, only the high-water mark is known.
        let begin = minor.or(major).map(|_| Rusage::default());
        usage.counts = ImageRusage { begin, end: Some(end) };
    }
}

/// Returns the RSS at the end of a run, if the process runs then.
fn resident_set(values: &BTreeMap<(ImageValue, u32), u64>) -> Option<ResidentSet> {
    let known = |kind| values.get(&(kind, 0)).copied();
    let runtime = known(ImageValue::Runtime).and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
    Some(ResidentSet {
        start: known(ImageValue::RssStart).map(Bytes),
        end: Bytes(known(ImageValue::RssEnd)?),
        shared: Bytes(known(ImageValue::RssShared).unwrap_or_default()),
        runtime: runtime.and_then(|index| Runtime::ALL.get(index).copied()),
    })
}

/// Sets the resident memory, which is read at the end of a run.
fn set_resident(usage: &mut ImageUsage, values: &BTreeMap<(ImageValue, u32), u64>) {
    usage.resident_is_unknown = values.contains_key(&(ImageValue::ResidentUnknown, 0));
    for (&(value, index), &number) in values {
        let is_resident = matches!(
            value,
            ImageValue::Resident
                | ImageValue::ResidentWithStack
                | ImageValue::ResidentCounted
                | ImageValue::ResidentVariance
                | ImageValue::ResidentBefore
        );
        let Some(&kind) = MappingKind::ALL.get(index as usize).filter(|_| is_resident) else { continue };
        let resident = usage.resident.get_or_insert_default().0.entry(kind).or_default();
        match value {
            ImageValue::Resident => resident.total.0 = number,
            ImageValue::ResidentWithStack => resident.with_stack.0 = number,
            ImageValue::ResidentCounted => resident.counted.0 = number,
            ImageValue::ResidentVariance => resident.variance = number,
            _ => resident.before.0 = number,
        }
    }
}

fn process_image(image: RecordedImage, calls: &RecordedCalls) -> ProcessImage {
    let RecordedImage { id: _, comm, exe, user, cgroup, threads, thread_names, start, ended, member_of: _ } = image;
    let executable = exe.as_ref().and_then(|exe| calls.executable(exe));
    ProcessImage {
        comm,
        exe,
        user,
        cgroup,
        threads,
        thread_names,
        start,
        ended,
        mappings: executable.into_iter().collect(),
        ..ProcessImage::default()
    }
}
