use memtrace_model::{
    AbsAddr, Amount, Bytes, EventClass, FileOffset, Frame, ImageEnd, ImageId, ImageStart, ImageUsage, LossReason,
    Mapping, Name, Names, Object, ObjectName, PartChange, PathObject, Pid, ProcessImage, Profile, Quantities, Quantity,
    RunFacts, Snapshot, Snapshots, Stack, StackId, StackKey, Stacks, Tick, Tid, User,
};
use proptest::prelude::*;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::super::test_code::TestCode;
use super::super::{
    ChangesInParts, EndedProcesses, EndedSettings, ExactTotals, FramesByObject, LiveChangesByStack, NamedClasses,
};
use super::*;

fn frame(name: &str) -> Frame {
    Frame { inlined: name.starts_with("inlined"), ..Frame::new(Ok(Name(String::from(name)))) }
}

fn id(pid: u32, ordinal: u32) -> ImageId {
    ImageId { pid: Pid(pid), ordinal }
}

fn usage(bytes: u64) -> Quantities {
    Quantities::ZERO
        .with_amount(Quantity::LiveBytes, Amount::one(Bytes(bytes)))
        .with_amount(Quantity::AllocBytes, Amount::one(Bytes(bytes)))
        .with_free(Amount::default())
}

fn stack(frames: &[u64], end: StackEnd) -> Stack {
    stack_at(0, frames, end)
}

fn stack_at(time: u64, frames: &[u64], end: StackEnd) -> Stack {
    Stack { frames: frames.iter().map(|&address| AbsAddr(address)).collect(), end, taken: Duration::from_nanos(time) }
}

fn image(peak: Option<u64>, stacks: &[(u64, u64, u64)]) -> ImageUsage {
    let by_stack = stacks
        .iter()
        .map(|&(stack, bytes, at_peak)| (StackId(stack).into(), usage(bytes).with(Quantity::AtPeakBytes, at_peak)))
        .collect();
    ImageUsage { peak: peak.map(Bytes), by_stack, ..ImageUsage::default() }
}

/// Returns the profile of a snapshot.
fn profile_by(
    snapshot: &Snapshot,
    images: &BTreeMap<ImageId, ProcessImage>,
    names: &dyn Names,
    window: &Range<Tick>,
) -> Profile {
    profile_with_changes(snapshot, images, names, window, LiveChangesByStack::default())
}

fn profile_with_changes(
    snapshot: &Snapshot,
    images: &BTreeMap<ImageId, ProcessImage>,
    names: &dyn Names,
    window: &Range<Tick>,
    changes: LiveChangesByStack,
) -> Profile {
    let snapshots = Snapshots([(EventClass::Heap, snapshot.clone())].into());
    let end = ExactTotals::new(
        snapshots,
        images,
        |_, _| TestCode::new(),
        no_ended(),
        window,
        ChangesInParts { by_stack: changes, ..ChangesInParts::default() },
    );
    NamedClasses::new(&end, names).take(EventClass::Heap).into_profile(RunFacts::default(), Vec::new(), |_| None)
}

fn no_ended() -> EndedProcesses {
    EndedProcesses::new(EndedSettings {
        keep: 0,
        max_stack_entries: 0,
        max_call_paths: 0,
        max_name_bytes: 1 << 20,
        start: Tick(0),
    })
}

/// Returns the profile of a snapshot. In each image, address 1 is in `main`, 2 and 22 are in `work`, and 3 is in
/// `alloc` with two inline frames.
fn profile_of(snapshot: &Snapshot) -> Profile {
    let named: [(u64, Vec<Frame>); 4] = [
        (1, vec![frame("main")]),
        (2, vec![frame("work")]),
        (22, vec![frame("work")]),
        (3, vec![frame("alloc"), frame("inlined one"), frame("inlined two")]),
    ];
    let by_offset = named.map(|(address, frames)| (FileOffset(address - 1), frames.into())).into();
    let program = ObjectName { path: "program".into(), build_id: None };
    let object = Object { path: program.path.clone(), handle: None, build_id: None, root: None };
    let object = Some(Arc::new(object));
    let mapping = Mapping { start: AbsAddr(0), end: AbsAddr(100), offset: FileOffset(0), object };
    let image = ProcessImage { mappings: vec![mapping], ..ProcessImage::default() };
    let images = snapshot.images.keys().map(|&id| (id, image.clone())).collect();
    let names = FramesByObject([(program, by_offset)].into_iter().collect());
    profile_by(snapshot, &images, &names, &(Tick(0)..Tick(1)))
}

fn names(profile: &Profile, stack: usize) -> Vec<String> {
    profile.stacks[stack].frames.iter().map(|id| profile.frames[id.index()].label()).collect()
}

#[test]
fn frames_are_root_first_with_inlined_after_callers() {
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), image(None, &[(10, 64, 0)]))]),
        stacks: Stacks::from([(StackId(10), stack(&[3, 2, 1], StackEnd::Complete))]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot);
    assert_eq!(names(&profile, 0), ["main", "work", "alloc", "inlined one", "inlined two"]);
    assert_eq!(profile.frames.len(), 5);
}

#[test]
fn stacks_with_equal_frames_process_and_end_are_merged() {
    let stacks = [(10, 64, 1), (11, 100, 2), (12, 1, 4)];
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), image(Some(500), &stacks)), (id(1, 1), image(None, &stacks[..1]))]),
        stacks: Stacks::from([
            (StackId(10), stack(&[2, 1], StackEnd::Complete)),
            (StackId(11), stack(&[22, 1], StackEnd::Complete)),
            (StackId(12), stack(&[2, 1], StackEnd::GeneratedCut)),
        ]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot);
    let rows: Vec<_> = profile
        .stacks
        .iter()
        .map(|stack| (stack.process, stack.end, stack.usage.live(), stack.usage[Quantity::AtPeakBytes]))
        .collect();
    let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
    assert_eq!(
        rows,
        [
            (0, StackEnd::Complete, amount(164, 2), 3),
            (0, StackEnd::GeneratedCut, amount(1, 1), 4),
            (1, StackEnd::Complete, amount(64, 1), 1),
        ]
    );
}

/// Returns an image with object 0 at the addresses 10 to 19. `replaced`: start, end and time of replacement of
/// earlier mappings, which are objects 1, 2 and so on.
fn image_with_replaced(replaced: &[(u64, u64, u64)]) -> ProcessImage {
    let mapping = |start, end, number: u64| {
        let path = number.to_string().into();
        let object = Arc::new(Object { path, handle: None, build_id: None, root: None });
        Mapping { start: AbsAddr(start), end: AbsAddr(end), offset: FileOffset(start), object: Some(object) }
    };
    let mut image = ProcessImage { mappings: vec![mapping(10, 20, 0)], ..ProcessImage::default() };
    for (number, &(start, end, until)) in (1..).zip(replaced) {
        image.replaced.add(mapping(start, end, number), Duration::from_nanos(until));
    }
    image
}

/// Source of names that contain the offset and the object.
struct Locations;

impl Names for Locations {
    fn frames(&self, object: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        let name = |offset: &FileOffset| format!("{} of {}", offset.0, object.object.path.display());
        offsets.iter().map(|offset| [frame(&name(offset))].into()).collect()
    }
}

/// Returns the profile of image 1. The name of a frame contains the offset and the object.
fn profile_by_location(snapshot: &Snapshot, image: &ProcessImage) -> Profile {
    let images = BTreeMap::from([(id(1, 0), image.clone())]);
    profile_by(snapshot, &images, &Locations, &(Tick(0)..Tick(1)))
}

#[test]
fn equal_addresses_in_different_mappings_are_two_stacks() {
    let stacks = [(10, 1, 100), (11, 2, 200), (12, 4, 400)];
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), image(Some(700), &stacks))]),
        stacks: Stacks::from([
            (StackId(10), stack_at(3, &[12, 15], StackEnd::Complete)),
            (StackId(11), stack_at(4, &[12, 15], StackEnd::Complete)),
            (StackId(12), stack_at(5, &[12, 15], StackEnd::Complete)),
        ]),
        ..Snapshot::default()
    };
    let rows = |replaced| {
        let profile = profile_by_location(&snapshot, &image_with_replaced(replaced));
        let row = |number, stack: &StackProfile| {
            (names(&profile, number).join(", "), stack.usage.live().bytes.0, stack.usage[Quantity::AtPeakBytes])
        };
        profile.stacks.iter().enumerate().map(|(number, stack)| row(number, stack)).collect::<Vec<_>>()
    };
    let row = |root: u64, leaf: u64, bytes, peak| (format!("14 of {root}, 11 of {leaf}"), bytes, peak);
    assert_eq!(rows(&[]), [row(0, 0, 7, 700)]);
    // Neither mapping matters: the first one was replaced before all stacks, and the second one has other
    // addresses.
    assert_eq!(rows(&[(10, 20, 3), (30, 40, 9)]), [row(0, 0, 7, 700)]);
    assert_eq!(rows(&[(11, 13, 5)]), [row(0, 0, 4, 400), row(0, 1, 3, 300)]);
}

proptest! {
    #[test]
    fn every_byte_is_in_one_stack_with_replaced_mappings(
        stacks in prop::collection::vec((1..6u64, prop::collection::vec(10..14u64, 1..3), 0..1000u64), 0..12),
        replaced in prop::collection::vec((9..13u64, 1..3u64, 0..7u64), 0..5),
    ) {
        let (mut by_stack, mut frames) = (BTreeMap::new(), Stacks::default());
        for (number, (time, addresses, bytes)) in stacks.iter().enumerate() {
            let id = StackId(2 + number as u64);
            by_stack.insert(id.into(), usage(*bytes).with(Quantity::AtPeakBytes, *bytes));
            frames.insert(id, &stack_at(*time, addresses, StackEnd::Complete));
        }
        let totals = ImageUsage { peak: Some(Bytes(0)), by_stack, ..ImageUsage::default() };
        let snapshot =
            Snapshot { images: BTreeMap::from([(id(1, 0), totals)]), stacks: frames, ..Snapshot::default() };
        let replaced: Vec<_> = replaced.iter().map(|&(start, length, until)| (start, start + length, until)).collect();
        let profile = profile_by_location(&snapshot, &image_with_replaced(&replaced));
        let sum_of = |bytes: &mut dyn Iterator<Item = Quantities>| {
            bytes.fold(Quantities::default(), |mut sum, usage| { sum += usage; sum })
        };
        let expected = sum_of(&mut snapshot.images[&id(1, 0)].by_stack.values().copied());
        prop_assert_eq!(sum_of(&mut profile.stacks.iter().map(|stack| stack.usage)), expected);
        let at_peak: u64 = profile.stacks.iter().map(|stack| stack.usage[Quantity::AtPeakBytes]).sum();
        prop_assert_eq!(at_peak, expected.live().bytes.0);
        let seen: BTreeSet<_> = (0..profile.stacks.len()).map(|number| names(&profile, number)).collect();
        prop_assert_eq!(seen.len(), profile.stacks.len(), "duplicate stack");
    }
}

#[test]
fn stacks_and_frames_are_sorted_by_name() {
    let snapshot = |first, second| Snapshot {
        images: BTreeMap::from([(id(1, 0), image(None, &[(first, 64, 0), (second, 64, 0)]))]),
        stacks: Stacks::from([
            (StackId(first), stack(&[2, 1], StackEnd::Complete)),
            (StackId(second), stack(&[3, 1], StackEnd::Complete)),
        ]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot(10, 11));
    assert_eq!(profile, profile_of(&snapshot(11, 10)));
    assert!(profile.frames.is_sorted());
    assert_eq!(names(&profile, 0)[1], "alloc");
    assert_eq!(names(&profile, 1)[1], "work");
}

#[test]
fn stacks_without_frames_are_merged_per_reason() {
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), image(None, &[(0, 1, 0), (1, 2, 0), (10, 4, 0), (11, 8, 0)]))]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot);
    assert!(profile.frames.is_empty());
    let rows: Vec<_> = profile.stacks.iter().map(|stack| (stack.end, stack.usage.live().bytes.0)).collect();
    assert_eq!(rows, [(StackEnd::NotTaken, 1), (StackEnd::Failed, 2), (StackEnd::FramesLost, 12)]);
}

#[test]
fn stacks_that_the_ledger_merged_are_counted() {
    // The ledger has merged stack 10, and the stack has occurred again.
    let totals = ImageUsage { merged_stacks: 3, ..image(None, &[(StackId::OTHER.0, 4, 0), (10, 8, 0), (11, 16, 0)]) };
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), totals)]),
        stacks: Stacks::from([
            (StackId(10), stack(&[], StackEnd::Merged)),
            (StackId(11), stack(&[1], StackEnd::Complete)),
        ]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot);
    let rows: Vec<_> =
        profile.stacks.iter().map(|stack| (stack.end, stack.merged(), stack.usage.live().bytes.0)).collect();
    assert_eq!(rows, [(StackEnd::Merged, 4, 12), (StackEnd::Complete, 0, 16)]);
}

#[test]
fn stacks_of_different_threads_are_separate() {
    let of = |tid, bytes| {
        let part = Part::WHOLE.with_thread(Tid(tid));
        (StackKey { stack: StackId(10), part }, usage(bytes).with(Quantity::AtPeakBytes, 0))
    };
    let by_stack = BTreeMap::from([of(7, 1), of(8, 2)]);
    let snapshot = Snapshot {
        images: BTreeMap::from([(id(1, 0), ImageUsage { by_stack, ..ImageUsage::default() })]),
        stacks: Stacks::from([(StackId(10), stack(&[1], StackEnd::Complete))]),
        ..Snapshot::default()
    };
    let profile = profile_of(&snapshot);
    let rows: Vec<_> = profile.stacks.iter().map(|stack| (stack.part, stack.usage.live().bytes.0)).collect();
    assert_eq!(rows, [(Part::WHOLE.with_thread(Tid(7)), 1), (Part::WHOLE.with_thread(Tid(8)), 2)]);
}

#[test]
fn unmatched_frees_after_fork_are_inherited_until_exec() {
    let usage = |unmatched_frees| ImageUsage { unmatched_frees, ..ImageUsage::default() };
    let snapshot = Snapshot {
        images: BTreeMap::from([
            (id(1, 0), usage(1)),
            (id(2, 0), usage(2)),
            (id(2, 1), usage(4)),
            (id(3, 0), usage(8)),
        ]),
        ..Snapshot::default()
    };
    let started = |start| ProcessImage { start, ..ProcessImage::default() };
    let images = BTreeMap::from([
        (id(1, 0), started(ImageStart::Unseen)),
        (id(2, 0), started(ImageStart::Fork(Tick(5)))),
        (id(2, 1), started(ImageStart::Exec(Tick(6)))),
        // The process may have allocated the blocks between its fork and the start of tracing.
        (id(3, 0), started(ImageStart::Fork(Tick(4)))),
    ]);
    let profile = profile_by(&snapshot, &images, &FramesByObject::default(), &(Tick(5)..Tick(9)));
    let frees: Vec<_> =
        profile.processes.iter().map(|process| (process.unmatched_frees, process.inherited_frees)).collect();
    assert_eq!(frees, [(1, 0), (0, 2), (4, 0), (8, 0)]);
    assert_eq!((profile.unmatched_frees(), profile.inherited_frees()), (13, 2));
}

#[test]
fn processes_have_user_and_thread_names() {
    let snapshot = Snapshot { images: BTreeMap::from([(id(1, 0), image(None, &[]))]), ..Snapshot::default() };
    let user = Some(User { uid: 107, name: Some(String::from("redis")) });
    let thread_names = BTreeMap::from([(Tid(2), String::from("worker"))]);
    let image = ProcessImage {
        user: user.clone(),
        threads: Some(3),
        thread_names: thread_names.clone(),
        ..ProcessImage::default()
    };
    let images = BTreeMap::from([(id(1, 0), image)]);
    let profile = profile_by(&snapshot, &images, &FramesByObject::default(), &(Tick(0)..Tick(1)));
    let process = &profile.processes[0];
    assert_eq!((&process.user, process.threads, &process.thread_names), (&user, Some(3), &thread_names));
}

#[test]
fn processes_are_sorted_by_image_with_their_data() {
    let mut snapshot = Snapshot {
        images: BTreeMap::from([
            (id(9, 0), image(None, &[])),
            (id(4, 1), image(None, &[])),
            (id(4, 0), image(Some(7), &[])),
        ]),
        ..Snapshot::default()
    };
    snapshot.losses.add(LossReason::ProbeMissed, 3);
    let first = snapshot.images.get_mut(&id(4, 0)).unwrap();
    first.ended = Some(ImageEnd::Exec);
    first.total = usage(50).with_amount(Quantity::DiscardedBytes, Amount::one(Bytes(50)));
    first.unmatched_frees = 2;
    let images = BTreeMap::from([
        (id(4, 0), ProcessImage { comm: "sh".into(), exe: Some("/bin/sh".into()), ..ProcessImage::default() }),
        (id(9, 0), ProcessImage::default()),
    ]);
    let profile = profile_by(&snapshot, &images, &FramesByObject::default(), &(Tick(0)..Tick(1)));
    let expected = ProcessProfile {
        exe: Some("/bin/sh".into()),
        ended: Some(ImageEnd::Exec),
        total: usage(50).with_amount(Quantity::DiscardedBytes, Amount::one(Bytes(50))),
        unmatched_frees: 2,
        peak: Some(Bytes(7)),
        traced: Tick(1).since_start(),
        ..ProcessProfile::new(Pid(4), "sh")
    };
    assert_eq!(profile.processes[0], expected);
    let rest: Vec<_> = profile.processes[1..].iter().map(|process| (process.pid.0, process.comm.raw())).collect();
    assert_eq!(rest, [(4, "?"), (9, "?")]);
    assert_eq!(profile.losses, snapshot.losses);
}

#[test]
fn changes_of_stacks_with_the_same_path_are_added() {
    // The first two stacks have the same frames, as after a change of the mappings. The last one has no known
    // changes.
    let stacks = [(10, stack(&[2, 1], StackEnd::Complete)), (11, stack(&[2, 1], StackEnd::Complete))];
    let others = [(12, stack(&[3, 1], StackEnd::Complete)), (13, stack(&[4, 1], StackEnd::Complete))];
    let snapshot = Snapshot {
        images: [(id(1, 0), image(None, &[(10, 8, 0), (11, 8, 0), (12, 8, 0), (13, 8, 0)]))].into(),
        stacks: stacks.into_iter().chain(others).map(|(id, stack)| (StackId(id), stack)).collect(),
        ..Snapshot::default()
    };
    let changes = |parts: &[i64]| {
        let mut changes = LiveChanges::default();
        parts.iter().enumerate().for_each(|(at, &live)| changes.add(at, 2, PartChange { live, alloc: 1 }));
        changes
    };
    let by_stack = [(10, [1, 7]), (11, [3, 5]), (12, [8, 0])];
    let by_stack = by_stack.map(|(id, parts)| (StackKey::from(StackId(id)), changes(&parts))).into_iter().collect();
    let known = LiveChangesByStack::from([((EventClass::Heap, id(1, 0)), by_stack)]);
    let (images, names) = (BTreeMap::new(), FramesByObject::default());
    let profile = profile_with_changes(&snapshot, &images, &names, &(Tick(0)..Tick(1)), known);
    let live = |stack: &StackProfile| stack.live_changes.as_slice().iter().map(|part| part.live).collect::<Vec<_>>();
    assert_eq!(profile.stacks.iter().map(live).collect::<Vec<_>>(), [vec![4, 12], vec![8, 0], vec![]]);
}
