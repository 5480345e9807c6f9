mod groups;
mod limits;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, Amount, BuildId, Bytes, Cgroup, FileOffset, ImageStart, Mapping, MappingKind, Object, Part, Pid, Profile,
    Quantities, Quantity, RunFacts, Snapshot, Snapshots, Stack, StackEnd, StackId, StackKey, User,
};
use proptest::prelude::*;

use super::*;
use crate::test_code::TestCode;
use crate::{ExactTotals, FramesByObject, NamedClasses};

const START: Tick = Tick(100);
const WINDOW: std::ops::Range<Tick> = START..Tick(9000);

const UNLIMITED: EndedSettings = EndedSettings {
    keep: usize::MAX,
    max_stack_entries: usize::MAX,
    max_call_paths: usize::MAX,
    max_name_bytes: 1 << 20,
    start: START,
};

/// A stack of an executable. `functions`: numbers of the called functions. `blocks`: number of allocated blocks.
/// `held`: number of blocks that are live at the end of the image.
#[derive(Clone, Debug)]
struct TestStack {
    functions: Vec<u8>,
    end: StackEnd,
    part: Part,
    blocks: u8,
    held: u8,
}

/// A process image of a test. `program`: number of its executable. `base`: load address, in pages above
/// 0x5000_0000.
#[derive(Clone, Debug)]
struct TestImage {
    program: u8,
    base: u16,
    user: u8,
    cgroup: u8,
    end: ImageEnd,
    lifetime: (u16, u16),
    start: u8,
    stacks: Vec<TestStack>,
    frees: u8,
    peak: bool,
}

fn test_stack() -> impl Strategy<Value = TestStack> {
    let parts =
        [Part::WHOLE, Part::WHOLE.with_memory(MappingKind::Heap), Part::WHOLE.with_thread(memtrace_model::Tid(3))];
    let ends = [StackEnd::Complete, StackEnd::Truncated];
    (
        prop::collection::vec(0..4_u8, 0..5),
        prop::sample::select(ends.to_vec()),
        prop::sample::select(parts.to_vec()),
        1..9_u8,
        any::<u8>(),
    )
        .prop_map(|(functions, end, part, blocks, held)| TestStack {
            functions,
            end,
            part,
            blocks,
            held: held % (blocks + 1),
        })
}

fn test_image() -> impl Strategy<Value = TestImage> {
    let ends = [ImageEnd::Exit, ImageEnd::OomKill, ImageEnd::Exec];
    let owner = (0..2_u8, 0..2_u8);
    let stacks = prop::collection::vec(test_stack(), 0..6);
    let lifetime = (0..5000_u16, 0..4000_u16);
    (0..3_u8, 0..900_u16, owner, prop::sample::select(ends.to_vec()), lifetime, 0..3_u8, stacks, 0..4_u8, any::<bool>())
        .prop_map(|(program, base, (user, cgroup), end, lifetime, start, stacks, frees, peak)| TestImage {
            program,
            base,
            user,
            cgroup,
            end,
            lifetime,
            start,
            stacks,
            frees,
            peak,
        })
}

fn object(program: u8) -> Object {
    let build_id = (program != 2).then(|| BuildId([program; 20].into()));
    Object { path: PathBuf::from(format!("/bin/program{program}")), handle: None, build_id, root: None }
}

impl TestImage {
    fn usage(&self, number: usize, class: EventClass) -> (ImageUsage, Stacks) {
        let (mut usage, mut frames) = (ImageUsage::default(), Stacks::default());
        for (nth, stack) in self.stacks.iter().enumerate() {
            let id = StackId(1000 + number as u64 * 100 + nth as u64);
            let address = |function: &u8| AbsAddr(self.base() + u64::from(*function) * 16 + 1);
            let taken = Duration::from_nanos(nth as u64);
            frames.insert(id, &Stack { frames: stack.functions.iter().map(address).collect(), end: stack.end, taken });
            let amount = |blocks: u8| Amount { bytes: Bytes(u64::from(blocks) * 48), count: blocks.into() };
            let free = amount(stack.blocks - stack.held);
            let live = amount(stack.held);
            let of_stack = Quantities::ZERO
                .with_amount(Quantity::LiveBytes, live)
                .with_amount(Quantity::AllocBytes, amount(stack.blocks))
                .with_free(free);
            let of_stack = of_stack.with(Quantity::AtPeakBytes, u64::from(stack.blocks));
            usage.total += of_stack.additive();
            *usage.by_stack.entry(StackKey { stack: id, part: stack.part }).or_default() += of_stack;
        }
        usage.end(self.end, class);
        usage.unmatched_frees = self.frees.into();
        usage.repeated_frees = u64::from(self.frees) / 2;
        usage.peak = self.peak.then_some(Bytes(77));
        (usage, frames)
    }

    fn base(&self) -> u64 {
        0x5000_0000 + u64::from(self.base) * 4096
    }

    fn image(&self) -> ProcessImage {
        let (from, lifetime) = self.lifetime;
        let from = Tick(from.into());
        let object = object(self.program);
        let exe = object.path.clone();
        let mapping = Mapping {
            start: AbsAddr(self.base()),
            // Function 3 is outside of all files.
            end: AbsAddr(self.base() + 40),
            offset: FileOffset(0),
            object: Some(Arc::new(object)),
        };
        ProcessImage {
            comm: format!("program{}", self.program).into(),
            exe: Some(exe),
            mappings: vec![mapping],
            user: Some(User { uid: self.user.into(), name: None }),
            cgroup: (self.cgroup > 0).then(|| Arc::new(Cgroup { path: String::from("/a.slice"), ..Cgroup::default() })),
            start: [ImageStart::Unseen, ImageStart::Fork(from), ImageStart::Exec(from)][usize::from(self.start)],
            ended: Some((self.end, Tick(from.0 + u32::from(lifetime)))),
            ..ProcessImage::default()
        }
    }

    fn completed(&self, number: usize, classes: &[EventClass]) -> CompletedImage {
        let usage = classes.iter().map(|&class| (class, self.usage(number, class).0)).collect();
        let image = self.image();
        let stacks = self.usage(number, EventClass::Heap).1;
        let at = image.ended.unwrap().1;
        CompletedImage { id: id(number), end: self.end, at, image, usage, stacks }
    }
}

fn id(number: usize) -> ImageId {
    ImageId { pid: Pid(10 + number as u32 / 2), ordinal: number as u32 % 2 }
}

const CLASSES: [EventClass; 2] = [EventClass::Heap, EventClass::Map];

fn ended(images: &[TestImage], order: impl IntoIterator<Item = usize>, settings: EndedSettings) -> EndedProcesses {
    let mut ended = EndedProcesses::new(settings);
    for number in order {
        ended.add(images[number].completed(number, &CLASSES), &mut TestCode::new());
    }
    ended
}

/// Returns the profiles of `images`. Images with `is_ended` have ended before the end of the trace, and are in
/// `ended`.
fn profiles(images: &[TestImage], ended: EndedProcesses, is_ended: impl Fn(usize) -> bool) -> [Profile; 2] {
    let (mut snapshots, mut known) = (Snapshots::default(), BTreeMap::new());
    for (number, image) in images.iter().enumerate().filter(|(number, _)| !is_ended(*number)) {
        let CompletedImage { id, end, at, image, usage, stacks } = image.completed(number, &CLASSES);
        known.insert(id, image);
        for (class, usage) in usage {
            let part = Snapshot {
                images: [(id, usage)].into(),
                stacks: stacks.clone(),
                ends: [(id, (end, at))].into(),
                ..Snapshot::default()
            };
            snapshots.0.entry(class).or_default().merge(part);
        }
    }
    let code_of = |_, _: &ProcessImage| TestCode::new();
    let end = ExactTotals::new(snapshots, &known, code_of, ended, &WINDOW, Default::default());
    let mut classes = NamedClasses::new(&end, &FramesByObject::default());
    CLASSES
        .map(|class| classes.take(class).into_profile(RunFacts { class, ..RunFacts::default() }, Vec::new(), |_| None))
}

proptest! {
    #[test]
    fn kept_images_are_shown_as_without_grouping(
        images in prop::collection::vec(test_image(), 0..8),
        ended_ones in any::<u8>(),
    ) {
        let is_ended = |number: usize| ended_ones >> number & 1 != 0;
        let before = profiles(&images, EndedProcesses::new(UNLIMITED), |_| false);
        let kept = ended(&images, (0..images.len()).rev().filter(|&number| is_ended(number)), UNLIMITED);
        let after = profiles(&images, kept, is_ended);
        prop_assert_eq!(before, after);
    }
}
