//! Readings of the heap profiles that targets keep.

use super::*;

#[test]
fn applied_events_follow_the_records_of_the_source() {
    let image = |ordinal| ImageId { pid: Pid(1), ordinal };
    let sum = |samples| SampleSum::of_poisson(samples, Bytes(100), Bytes(1), 0);
    let reading = |ordinal, number, allocs, frees| {
        let (stack, allocator) = (StackId(9), AllocatorId::UNKNOWN);
        let changes = [ProfileChange { stack, allocator, alloc: sum(allocs), free: sum(frees) }].into();
        let kind = EventKind::HeapProfile { image: image(ordinal), reading: number, changes };
        Event { kind, ..alloc(16, 1) }
    };
    for shards in [1, 3] {
        // The exec of the process is still in the rings when its profile is read.
        let events = [alloc(16, 10), Event { kind: EventKind::Exec, ..alloc(16, 1) }];
        let sources = sources(&events, shards);
        let mut running = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
        running.apply(image(1), vec![reading(1, 0, 7, 0)]);
        running.apply(image(1), vec![reading(1, 1, 1, 2)]);
        running.apply(image(0), vec![reading(0, 0, 5, 0)]);
        let totals = running.finish(NOW);
        let snapshot = &totals.snapshots.0[&EventClass::Heap];
        let live = |ordinal| snapshot.images[&image(ordinal)].total.live();
        assert_eq!((live(0), live(1)), (Amount::default(), Amount { bytes: Bytes(600), count: 6 }));
        assert_eq!(snapshot.losses.get(LossReason::ProfileLate), 1, "the profile of an image that has ended");
        // Each shard has the exec.
        assert_eq!(totals.events, 1 + u64::from(shards) + 2);
    }
}

/// Returns the events of the first reading of an image: a new stack with seven live blocks.
fn first_reading(image: ImageId) -> Vec<Event> {
    let stack = Box::new(Stack { frames: [AbsAddr(1)].into(), end: StackEnd::Complete, taken: Duration::ZERO });
    let (id, allocator) = (StackId(9), AllocatorId::UNKNOWN);
    let change = ProfileChange {
        stack: id,
        allocator,
        alloc: SampleSum::of_poisson(7, Bytes(100), Bytes(1), 0),
        free: SampleSum::default(),
    };
    let reading = EventKind::HeapProfile { image, reading: 0, changes: [change].into() };
    [EventKind::Stack { id, stack }, reading].map(|kind| Event { kind, ..alloc(16, 1) }).into()
}

#[test]
fn stacks_of_a_late_reading_are_dropped() {
    let image = |ordinal| ImageId { pid: Pid(1), ordinal };
    let events = [alloc(16, 10), Event { kind: EventKind::Exit, ..alloc(16, 1) }];
    let sources = sources(&events, 1);
    let mut running = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
    running.apply(image(0), first_reading(image(0)));
    let totals = running.finish(NOW);
    let snapshot = &totals.snapshots.0[&EventClass::Heap];
    assert_eq!(snapshot.images.keys().collect::<Vec<_>>(), [&image(0)]);
    assert!(!snapshot.stacks.contains(StackId(9)));
    assert_eq!((totals.events, snapshot.losses.get(LossReason::ProfileLate)), (2, 1));
}

#[test]
fn a_reading_waits_for_the_end_of_the_image_before() {
    let image = |ordinal| ImageId { pid: Pid(1), ordinal };
    for is_known in [true, false] {
        // The record of the exec was lost.
        let sources = sources(&[alloc(16, 10)], 1);
        let mut running = Shards::start(sources, Settings::UNLIMITED, EventClass::ALL, &Sinks::default()).unwrap();
        running.apply(image(1), first_reading(image(1)));
        while running.progress().events == 0 {
            thread::yield_now();
        }
        if is_known {
            running.end_images(vec![(image(0), ImageEnd::Exec, NOW)], NOW);
        }
        let totals = running.finish(NOW);
        let snapshot = &totals.snapshots.0[&EventClass::Heap];
        let live = snapshot.images.get(&image(1)).map(|image| image.total.live().count);
        let expected = if is_known { (Some(7), 0) } else { (None, 1) };
        assert_eq!((live, snapshot.losses.get(LossReason::ProfileUnread)), expected);
    }
}
