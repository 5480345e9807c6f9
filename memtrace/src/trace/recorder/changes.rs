//! Converts the changes of an interval: from totals keyed by stack to totals keyed by call path.

use std::collections::BTreeMap;

use memtrace_history::{
    Change, Detail, DetailKind, ImageChange, ImageValue, Interval, PathNumber, StallChange, TotalKey,
};
use memtrace_model::{
    Amount, BlockHistograms, Bytes, Epoch, EventClass, ImageId, ImageUsage, Log2, MappingKind, PageFaults, Quantities,
    Quantity, ResidentSet, Runtime, StackEnd, StackId, StackKey,
};
use rustc_hash::FxHashMap;

use super::stacks::RecordedStacks;

/// Converter of changes by stack to changes by call path.
#[derive(Debug, Default)]
pub(super) struct PathChanges {
    /// Totals of stacks without frames. They are recorded as [`StackEnd::FramesLost`], and move to their paths when the
    /// frames arrive.
    unknown: BTreeMap<(ImageId, EventClass), FxHashMap<StackKey, UnknownStack>>,
}

/// Totals of a stack without frames.
#[derive(Debug, Default)]
struct UnknownStack {
    usage: Quantities,
    histograms: BlockHistograms,
    /// Changes of live amounts by epoch.
    by_epoch: BTreeMap<Epoch, Amount>,
}

/// Changes in an interval, by call path.
#[derive(Debug, Default)]
struct Sums {
    usage: FxHashMap<TotalKey, Quantities>,
    histograms: FxHashMap<TotalKey, BlockHistograms>,
    by_epoch: FxHashMap<(TotalKey, Epoch), Amount>,
}

impl PathChanges {
    /// Adds the changes of an interval. Then moves the totals of each stack to its path, if the frames of the stack
    /// have arrived since the last call.
    pub(super) fn add(
        &mut self,
        usage: BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>>,
        stacks: &RecordedStacks,
        interval: &mut Interval,
    ) {
        let mut sums = Sums::default();
        for (class, images) in usage {
            for (image, mut usage) in images {
                let mut merged = usage.merged_stacks;
                for (key, change) in std::mem::take(&mut usage.by_stack) {
                    let (path, end) = stacks.find(key.stack).unwrap_or_else(|| {
                        self.unknown(image, class, key).usage += change;
                        (PathNumber::ROOT, StackEnd::FramesLost)
                    });
                    let sum = sums.usage.entry(TotalKey { image, class, path, end, part: key.part }).or_default();
                    *sum += change;
                    if key.stack == StackId::OTHER {
                        // Only the first part carries the image's number of merged stacks.
                        sum[Quantity::MergedStacks] =
                            sum[Quantity::MergedStacks].wrapping_add(std::mem::take(&mut merged));
                    }
                }
                for (key, change) in std::mem::take(&mut usage.histograms) {
                    let (path, end) = stacks.find(key.stack).unwrap_or_else(|| {
                        self.unknown(image, class, key).histograms.add(&change);
                        (PathNumber::ROOT, StackEnd::FramesLost)
                    });
                    let key = TotalKey { image, class, path, end, part: key.part };
                    sums.histograms.entry(key).or_default().add(&change);
                }
                for ((key, epoch), change) in std::mem::take(&mut usage.by_epoch) {
                    let (path, end) = stacks.find(key.stack).unwrap_or_else(|| {
                        *self.unknown(image, class, key).by_epoch.entry(epoch).or_default() += change;
                        (PathNumber::ROOT, StackEnd::FramesLost)
                    });
                    let key = TotalKey { image, class, path, end, part: key.part };
                    *sums.by_epoch.entry((key, epoch)).or_default() += change;
                }
                add_values(image, class, &usage, interval);
            }
        }
        self.move_known(stacks, &mut sums);
        let changes = sums.usage.into_iter().filter(|(_, sum)| !sum.is_zero());
        interval.changes.extend(changes.map(|(key, usage)| Change { key, usage }));
        interval.changes.sort_unstable_by_key(|change| change.key);
        for ((key, Epoch(index)), change) in sums.by_epoch {
            let mut add = |kind, value| {
                if value != 0 {
                    interval.details.push(Detail { key, kind, index, value });
                }
            };
            add(DetailKind::EpochLiveBytes, change.bytes.0);
            add(DetailKind::EpochLiveCount, change.count);
        }
        for (key, histograms) in sums.histograms {
            let detail = |(quantity, log2, value): (_, Log2, _)| Detail {
                key,
                kind: DetailKind::of(quantity),
                index: log2.number(),
                value,
            };
            interval.details.extend(histograms.iter().map(detail));
        }
        interval.details.sort_unstable_by_key(|detail| (detail.key, detail.kind, detail.index));
    }

    fn unknown(&mut self, image: ImageId, class: EventClass, key: StackKey) -> &mut UnknownStack {
        self.unknown.entry((image, class)).or_default().entry(key).or_default()
    }

    /// Returns the stacks without frames, with their images.
    pub(super) fn unknown_stacks(&self) -> impl Iterator<Item = (ImageId, StackId)> + '_ {
        self.unknown.iter().flat_map(|((image, _), totals)| totals.keys().map(|key| (*image, key.stack)))
    }

    /// Forgets the stacks without frames of an image. Their totals stay as they are recorded.
    pub(super) fn forget(&mut self, image: ImageId) {
        self.unknown.retain(|(of, _), _| *of != image);
    }

    fn move_known(&mut self, stacks: &RecordedStacks, sums: &mut Sums) {
        self.unknown.retain(|&(image, class), totals| {
            totals.retain(|key, unknown| {
                let Some((path, end)) = stacks.find(key.stack) else { return true };
                let key = TotalKey { image, class, path, end, part: key.part };
                let lost = TotalKey { path: PathNumber::ROOT, end: StackEnd::FramesLost, ..key };
                *sums.usage.entry(key).or_default() += unknown.usage;
                *sums.usage.entry(lost).or_default() -= unknown.usage;
                if !unknown.histograms.is_empty() {
                    sums.histograms.entry(key).or_default().add(&unknown.histograms);
                    sums.histograms.entry(lost).or_default().subtract(&unknown.histograms);
                }
                for (&epoch, &change) in &unknown.by_epoch {
                    *sums.by_epoch.entry((key, epoch)).or_default() += change;
                    *sums.by_epoch.entry((lost, epoch)).or_default() -= change;
                }
                false
            });
            !totals.is_empty()
        });
    }
}

/// Adds the changes of an image that belong to no stack.
fn add_values(image: ImageId, class: EventClass, usage: &ImageUsage, interval: &mut Interval) {
    let values = [
        (ImageValue::DiscardedBytes, usage.total.discarded().bytes.0),
        (ImageValue::DiscardedCount, usage.total.discarded().count),
        (ImageValue::UnmatchedFrees, usage.unmatched_frees),
        (ImageValue::RepeatedFrees, usage.repeated_frees),
        (ImageValue::UnmatchedSamples, usage.unmatched_samples),
        (ImageValue::MergedStacks, usage.merged_stacks),
        (ImageValue::DemotedAt, u64::from(usage.demotion.at.0)),
        (ImageValue::DemotedSize, usage.demotion.min_size.0),
        (ImageValue::DroppedBytes, usage.demotion.dropped.bytes.0),
        (ImageValue::DroppedCount, usage.demotion.dropped.count),
        (ImageValue::DemotedFrees, usage.demotion.frees),
        (ImageValue::PeakRss, usage.counts.peak_rss().map_or(0, |peak| peak.0)),
        (ImageValue::SharesMemoryOf, usage.shares_memory_of.map_or(0, |main| u64::from(main.0))),
    ];
    let values = values.into_iter().filter(|(_, value)| *value != 0);
    interval.image_changes.extend(values.map(|(kind, value)| ImageChange { image, class, kind, index: 0, value }));
    interval
        .image_changes
        .extend(usage.counts.faults().into_iter().flat_map(|faults| fault_values(image, class, faults)));
    if let Some(Bytes(value)) = usage.peak {
        interval.image_changes.push(ImageChange { image, class, kind: ImageValue::Peak, index: 0, value });
    }
    interval.image_changes.extend(usage.rss.iter().flat_map(|rss| rss_values(image, class, rss)));
    interval.stalls.extend(usage.stalls.iter().map(|(&key, &stats)| StallChange { image, key, stats }));
}

/// Returns the RSS of an image as changes.
fn rss_values(image: ImageId, class: EventClass, rss: &ResidentSet) -> impl Iterator<Item = ImageChange> + use<> {
    let runtime =
        |known| Runtime::ALL.iter().zip(1..).find(|(runtime, _)| **runtime == known).map(|(_, number)| number);
    let values = [
        (ImageValue::RssStart, rss.start.map(|start| start.0)),
        (ImageValue::RssEnd, Some(rss.end.0)),
        (ImageValue::RssShared, Some(rss.shared.0)),
        (ImageValue::Runtime, rss.runtime.and_then(runtime)),
    ];
    let known = values.into_iter().filter_map(|(kind, value)| Some((kind, value?)));
    known.map(move |(kind, value)| ImageChange { image, class, kind, index: 0, value })
}

/// Returns the change that removes the totals of an image.
pub(super) fn removal(usage: &ImageUsage) -> ImageUsage {
    let ImageUsage { total, merged_stacks, by_stack, .. } = ImageUsage::default().diff(usage);
    ImageUsage { total, merged_stacks, by_stack, ..ImageUsage::default() }
}

/// Returns the page faults of an image as changes. The count of minor faults is present even if it is zero, to show
/// that the counts are known.
pub(super) fn fault_values(image: ImageId, class: EventClass, faults: PageFaults) -> impl Iterator<Item = ImageChange> {
    let value = move |kind, value| ImageChange { image, class, kind, index: 0, value };
    let major = (faults.major > 0).then(|| value(ImageValue::MajorFaults, faults.major));
    [value(ImageValue::MinorFaults, faults.minor)].into_iter().chain(major)
}

/// Adds the values of a running image that are read at the end of a run: page faults, peak RSS and resident memory.
pub(super) fn add_page_values(image: ImageId, class: EventClass, usage: &ImageUsage, interval: &mut Interval) {
    interval
        .image_changes
        .extend(usage.counts.faults().into_iter().flat_map(|faults| fault_values(image, class, faults)));
    let mut add = |kind, index, value| interval.image_changes.push(ImageChange { image, class, kind, index, value });
    if let Some(peak) = usage.counts.peak_rss() {
        add(ImageValue::PeakRss, 0, peak.0);
    }
    if usage.resident_is_unknown {
        add(ImageValue::ResidentUnknown, 0, 1);
    }
    for (kind, resident) in usage.resident.iter().flat_map(|residency| &residency.0) {
        let index = MappingKind::ALL.iter().zip(0..).find(|(known, _)| *known == kind).map_or(0, |(_, index)| index);
        add(ImageValue::Resident, index, resident.total.0);
        add(ImageValue::ResidentWithStack, index, resident.with_stack.0);
        add(ImageValue::ResidentCounted, index, resident.counted.0);
        add(ImageValue::ResidentVariance, index, resident.variance);
        add(ImageValue::ResidentBefore, index, resident.before.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_history::LivePaths;
    use memtrace_model::{AbsAddr, ImageRusage, Pid, ProcessImage, Quantities, Quantity, Rusage, Stack, Stacks};

    use super::*;

    const IMAGE: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

    fn stack(frame: u64) -> Stack {
        Stack { frames: [AbsAddr(frame)].into(), end: StackEnd::Complete, taken: Duration::ZERO }
    }

    /// Returns the changes of an image by stack; each number is both the live and the allocated
    /// bytes.
    fn bytes(stacks: &[(StackId, u64)]) -> BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>> {
        let usage = |&(id, bytes): &(StackId, u64)| {
            let amount = Amount::one(Bytes(bytes));
            let usage =
                Quantities::ZERO.with_amount(Quantity::LiveBytes, amount).with_amount(Quantity::AllocBytes, amount);
            (StackKey::from(id), usage)
        };
        let image = ImageUsage { by_stack: stacks.iter().map(usage).collect(), ..ImageUsage::default() };
        BTreeMap::from([(EventClass::Heap, BTreeMap::from([(IMAGE, image)]))])
    }

    /// Returns the paths, ends and changes of live bytes in an interval.
    fn changes(
        changes: &mut PathChanges,
        stacks: &RecordedStacks,
        usage: BTreeMap<EventClass, BTreeMap<ImageId, ImageUsage>>,
    ) -> Vec<(u32, StackEnd, i64)> {
        let mut interval = Interval::default();
        changes.add(usage, stacks, &mut interval);
        let live = |change: &Change| change.usage.live().bytes.0.cast_signed();
        interval.changes.iter().map(|change| (change.key.path.0, change.key.end, live(change))).collect()
    }

    #[test]
    fn totals_move_to_the_path_when_the_frames_arrive() {
        let (mut all, mut stacks) = (PathChanges::default(), RecordedStacks::new(LivePaths::new(100, 0)));
        let (first, late) = (StackId(10), StackId(11));
        stacks.add(IMAGE, &ProcessImage::default(), &Stacks::from([(first, stack(0x10))]), None);
        let usage = bytes(&[(first, 1), (late, 20), (StackId::FAILED, 300)]);
        let interval = changes(&mut all, &stacks, usage);
        let expected = [(0, StackEnd::Failed, 300), (0, StackEnd::FramesLost, 20), (1, StackEnd::Complete, 1)];
        assert_eq!(interval, expected);
        assert_eq!(all.unknown_stacks().collect::<Vec<_>>(), [(IMAGE, late)]);
        // The late stack is a copy of another stack.
        stacks.add(IMAGE, &ProcessImage::default(), &Stacks::from([(StackId(12), stack(0x20))]), None);
        stacks.add_alias(IMAGE, late, StackId(12));
        let interval = changes(&mut all, &stacks, bytes(&[(late, 5)]));
        assert_eq!(interval, [(0, StackEnd::FramesLost, -20), (2, StackEnd::Complete, 25)]);
        assert_eq!(changes(&mut all, &stacks, BTreeMap::new()), []);
        assert_eq!(all.unknown_stacks().count(), 0);
        stacks.forget(IMAGE);
        assert_eq!((stacks.find(first), stacks.find(late)), (None, None));
    }

    #[test]
    fn removed_totals_leave_nothing() {
        let (mut all, mut stacks) = (PathChanges::default(), RecordedStacks::new(LivePaths::new(100, 0)));
        stacks.add(IMAGE, &ProcessImage::default(), &Stacks::from([(StackId(10), stack(0x10))]), None);
        let mut usage = bytes(&[(StackId(10), 4096), (StackId::FAILED, 8192)]);
        let image = usage[&EventClass::Heap][&IMAGE].clone();
        let total = image.by_stack.values().copied().sum();
        let faults = PageFaults { minor: 3, major: 0 };
        let counts = ImageRusage { begin: None, end: Some(Rusage { faults, peak_rss: Bytes(1) }) };
        let removed = removal(&ImageUsage { total, counts, ..image });
        assert_eq!(removed.counts, ImageRusage::default());
        let change = usage.entry(EventClass::Heap).or_default().entry(IMAGE).or_default();
        change.merge(removed.clone());
        assert!(change.by_stack.values().all(Quantities::is_zero), "{change:?}");
        assert_eq!(removal(&ImageUsage { counts, ..ImageUsage::default() }), ImageUsage::default());
        let usage = BTreeMap::from([(EventClass::Heap, BTreeMap::from([(IMAGE, removed)]))]);
        let expected = [(0, StackEnd::Failed, -8192), (1, StackEnd::Complete, -4096)];
        assert_eq!(changes(&mut all, &stacks, usage), expected);
    }

    #[test]
    fn stacks_with_a_common_path_have_one_change() {
        let (mut all, mut stacks) = (PathChanges::default(), RecordedStacks::new(LivePaths::new(100, 0)));
        let same = Stacks::from([(StackId(10), stack(0x10)), (StackId(11), stack(0x10))]);
        stacks.add(IMAGE, &ProcessImage::default(), &same, None);
        let interval = changes(&mut all, &stacks, bytes(&[(StackId(10), 1), (StackId(11), 2)]));
        assert_eq!(interval, [(1, StackEnd::Complete, 3)]);
    }
}
