//! Records the stacks of ended images as stacks of a group of images.

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_history::{Change, Interval, PathNumber, RecordedImage, TotalKey};
use memtrace_history::{GroupedStack, GroupedStacks, ImageStacks};
use memtrace_model::{EventClass, ImageId, Part, ProcessImage, Quantities, Quantity, StackEnd};

/// Average number of stacks that are recorded in a second. This takes about a thousandth of a core, and 40 MiB in an
/// hour.
const STACKS_PER_SECOND: u64 = 500;

/// Minimum time between two recordings of all groups, unless too many stacks wait.
const SHORTEST: Duration = Duration::from_secs(10);
/// Maximum time between two recordings of all groups.
const LONGEST: Duration = Duration::from_secs(600);

/// Maximum number of changes in an interval, unless it ends at a mark. All changes of an interval are in memory at once.
const MAX_CHANGES: usize = 8192;

/// Groups of ended images. Until the stacks of a group are recorded, the recording has one sum per
/// image. When the stacks are recorded, their sum is subtracted from the group.
pub(super) struct GroupedImages {
    stacks: GroupedStacks,
    /// Stacks that are being recorded, up to [`MAX_CHANGES`] in each interval.
    recorded: Option<Box<dyn Iterator<Item = GroupedStack>>>,
    /// End of the interval that started the last recording of groups.
    last: Duration,
    /// Maximum number of waiting stacks. At this number, they are recorded without delay.
    max: usize,
    /// New groups. The next interval describes them.
    new: Vec<RecordedImage>,
}

impl GroupedImages {
    /// Returns an empty collection. At `max` waiting stacks, they are recorded without delay.
    pub(super) fn new(max: usize) -> Self {
        Self { stacks: GroupedStacks::default(), recorded: None, last: Duration::ZERO, max, new: Vec::new() }
    }

    /// Adds the stacks of an image, and returns its group.
    pub(super) fn add(&mut self, image: &ProcessImage, stacks: ImageStacks) -> ImageId {
        let (number, new) = self.stacks.add(image, stacks);
        let group = ImageId::of_group(number);
        self.new.extend(new.map(|image| RecordedImage::new(group, &image)));
        group
    }

    /// Moves the waiting stacks to an interval if they are due, up to [`MAX_CHANGES`]. With `all`, moves all stacks.
    pub(super) fn move_to(&mut self, interval: &mut Interval, all: bool) {
        interval.images.append(&mut self.new);
        let mut sums = BTreeMap::new();
        if all {
            let rest = self.recorded.take().into_iter().flatten();
            rest.for_each(|stack| add(stack, &mut sums, interval));
            self.stacks.take().for_each(|stack| add(stack, &mut sums, interval));
            self.last = interval.span.end;
        } else {
            if self.recorded.is_none() && self.is_due(interval.span.end) {
                self.recorded = Some(Box::new(self.stacks.take()));
                self.last = interval.span.end;
            }
            if let Some(recorded) = &mut self.recorded {
                let mut moved = 0;
                recorded.take(MAX_CHANGES).for_each(|stack| {
                    moved += 1;
                    add(stack, &mut sums, interval);
                });
                if moved < MAX_CHANGES {
                    self.recorded = None;
                }
            }
        }
        for (group, usage) in sums {
            let key = key(group, PathNumber::ROOT, StackEnd::Merged, Part::WHOLE);
            interval.changes.push(Change { key, usage });
        }
    }

    fn is_due(&self, now: Duration) -> bool {
        let entries = self.stacks.entries();
        let passed = now.saturating_sub(self.last);
        let affordable = entries as u64 <= passed.as_secs() * STACKS_PER_SECOND;
        entries > 0 && (passed >= LONGEST || passed >= SHORTEST && affordable || entries >= self.max)
    }
}

/// Adds a stack to an interval, and changes the sum of its group in `sums`.
fn add(stack: GroupedStack, sums: &mut BTreeMap<u32, Quantities>, interval: &mut Interval) {
    let GroupedStack { group, path, end, part, usage } = stack;
    let sum = sums.entry(group).or_default();
    if end == StackEnd::Merged {
        sum[Quantity::MergedStacks] += usage[Quantity::MergedStacks];
    } else {
        *sum -= usage.with(Quantity::MergedStacks, 0);
        let key = key(group, PathNumber(path.number()), end, part);
        interval.changes.push(Change { key, usage });
    }
}

const fn key(group: u32, path: PathNumber, end: StackEnd, part: Part) -> TotalKey {
    TotalKey { image: ImageId::of_group(group), class: EventClass::Heap, path, end, part }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_history::{CompletedImage, EndedProcesses, EndedSettings, LivePaths};
    use memtrace_host::target_files::TargetFiles;
    use memtrace_model::{
        AbsAddr, Amount, Bytes, Comm, FileOffset, ImageEnd, ImageUsage, Mapping, Object, Pid, Quantities, Quantity,
        Stack, StackId, StackKey, Stacks, Tick,
    };
    use memtrace_object::symbolize::ImageCode;

    use super::*;

    /// Groups, call paths of the recording, and processes that have ended.
    struct Recorded {
        groups: GroupedImages,
        paths: LivePaths,
        ended: EndedProcesses,
        images: u32,
    }

    /// Returns groups that keep about `entries` entries, and at most `max_paths` call paths.
    fn recorded(entries: usize, max_paths: usize) -> Recorded {
        let all = 1 << 20;
        let settings = EndedSettings {
            keep: all,
            max_stack_entries: all,
            max_call_paths: all,
            max_name_bytes: 0,
            start: Tick::default(),
        };
        Recorded {
            groups: GroupedImages::new(entries),
            paths: LivePaths::new(max_paths, 0),
            ended: EndedProcesses::new(settings),
            images: 0,
        }
    }

    /// Image with one object. Each address in the object is a call.
    fn image(name: &str) -> ProcessImage {
        let object = Object { path: "/lib".into(), handle: None, build_id: None, root: None };
        let (start, end, offset) = (AbsAddr(0), AbsAddr(1 << 20), FileOffset(0));
        let mapping = Mapping { start, end, offset, object: Some(Arc::new(object)) };
        ProcessImage { comm: Comm::from(name), mappings: vec![mapping], ..ProcessImage::default() }
    }

    /// Adds an image with a block of one byte for each of the first `stacks` stacks.
    fn add_image(Recorded { groups, paths, ended, images }: &mut Recorded, name: &str, stacks: u64) -> ImageId {
        let stack = |number| Stack { frames: [AbsAddr(number)].into(), end: StackEnd::Complete, taken: Duration::ZERO };
        let amount = Amount::one(Bytes(1));
        let usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, amount).with_amount(Quantity::AllocBytes, amount);
        let by_stack = (0..stacks).map(|number| (StackKey::from(StackId(100 + number)), usage)).collect();
        let stacks: Stacks = (0..stacks).map(|number| (StackId(100 + number), stack(number + 1))).collect();
        let usage = vec![(EventClass::Heap, ImageUsage { by_stack, ..ImageUsage::default() })];
        let id = ImageId { pid: Pid(1), ordinal: *images };
        *images += 1;
        let completed =
            CompletedImage { id, end: ImageEnd::Exit, at: Tick::default(), image: image(name), usage, stacks };
        let mut code = ImageCode::new(&completed.image, None, &TargetFiles);
        let (image, stacks) = ended.add_recorded(completed, &mut code, paths);
        groups.add(&image, stacks)
    }

    /// Returns the allocated bytes by group and path in an interval that ends after `seconds`.
    fn changes(groups: &mut GroupedImages, seconds: u64, all: bool) -> BTreeMap<(u32, u32), i64> {
        let mut interval = Interval { span: Duration::ZERO..Duration::from_secs(seconds), ..Interval::default() };
        groups.move_to(&mut interval, all);
        let alloc = |change: &Change| change.usage.alloc().bytes.0.cast_signed();
        let key = |change: &Change| (change.key.image.ordinal, change.key.path.0);
        let changes: BTreeMap<_, _> = interval.changes.iter().map(|change| (key(change), alloc(change))).collect();
        assert_eq!(changes.len(), interval.changes.len());
        assert_eq!(changes.values().sum::<i64>(), 0, "the sums that stood for the stacks are subtracted");
        changes
    }

    #[test]
    fn stacks_of_a_group_replace_the_sums_of_its_images() {
        let mut all = recorded(100, 1000);
        let ids = [("ls", 2), ("cc", 1), ("ls", 3)].map(|(name, stacks)| add_image(&mut all, name, stacks));
        assert_eq!(ids, [0, 1, 0].map(ImageId::of_group));
        assert_eq!(changes(&mut all.groups, 9, false), BTreeMap::new());
        let expected = [((0, 0), -5), ((0, 1), 2), ((0, 2), 2), ((0, 3), 1), ((1, 0), -1), ((1, 1), 1)];
        assert_eq!(changes(&mut all.groups, 10, false), expected.into());
        assert_eq!(changes(&mut all.groups, 30, true), BTreeMap::new());
        add_image(&mut all, "cc", 1);
        assert_eq!(changes(&mut all.groups, 31, true), [((1, 0), -1), ((1, 1), 1)].into(), "at a mark");
    }

    #[test]
    fn many_stacks_are_recorded_rarely_and_in_parts() {
        let mut all = recorded(1 << 20, 1 << 20);
        add_image(&mut all, "cc", 10_000);
        assert_eq!(changes(&mut all.groups, 19, false), BTreeMap::new());
        assert_eq!(changes(&mut all.groups, 20, false)[&(0, 0)], -8192);
        add_image(&mut all, "cc", 1);
        assert_eq!(changes(&mut all.groups, 21, false)[&(0, 0)], -1808);
        assert_eq!(changes(&mut all.groups, 22, false), BTreeMap::new());
        assert_eq!(changes(&mut all.groups, 30, false)[&(0, 0)], -1);
        // A full collection does not wait.
        let mut full = recorded(10, 1 << 20);
        add_image(&mut full, "cc", 10);
        assert_eq!(changes(&mut full.groups, 1, false)[&(0, 0)], -10);
    }
}
