//! Ends of process images, and processes.

use super::*;

#[test]
fn exec_discards_live_blocks_and_starts_a_new_image() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).free(B).exec().free(A).alloc(B, 5, S);
    let first = story.image(0);
    assert_eq!(first.ended, Some(ImageEnd::Exec));
    assert_eq!(first.total.discarded(), Amount::one(Bytes(10)));
    assert_eq!(
        (first.total.alloc().count, first.total.free(), first.total.live().count),
        (2, Amount::one(Bytes(20)), 0)
    );
    assert_eq!(first.by_stack[&S.into()], first.total);
    let second = story.image(1);
    assert_eq!(second.ended, None);
    assert_eq!(second.unmatched_frees, 1);
    assert_eq!(second.total, usage((5, 1), (5, 1), (0, 0)));
    assert_eq!(story.0.live(), Amount::one(Bytes(5)));
}

#[test]
fn live_blocks_are_held_at_exit_and_a_reused_pid_is_a_new_image() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 4, S).free(B).exit(0).alloc(A, 20, S);
    let first = story.image(0);
    assert_eq!(first.ended, Some(ImageEnd::Exit));
    assert_eq!(first.total.discarded(), Amount::default());
    let held = Quantities::ZERO.with_amount(Quantity::ExitBytes, Amount::one(Bytes(10)));
    assert_eq!(first.total, held.with_amount(Quantity::AllocBytes, Amount { bytes: Bytes(14), count: 2 }));
    assert_eq!(first.by_stack[&S.into()], first.total);
    assert_eq!(story.image(1).total, usage((20, 1), (20, 1), (0, 0)));
    // The old block does not count as a lost free, and no longer counts towards the maximum.
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
}

#[test]
fn images_without_usage_advance_the_ordinal() {
    let story = Story::new().exec().exec().exit(0).alloc(A, 10, S);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(snapshot.images.keys().collect::<Vec<_>>(), [&ImageId { pid: PID, ordinal: 3 }]);
}

#[test]
fn the_end_of_every_process_is_recorded_with_its_time() {
    let story = Story::new().exec().exit(3).alloc(A, 10, S).exec().exit(5);
    let id = |ordinal| ImageId { pid: PID, ordinal };
    // The first exec ended an image without events, which is not reported.
    let expected =
        [(id(1), (ImageEnd::Exit, Tick(3))), (id(2), (ImageEnd::Exec, Tick(0))), (id(3), (ImageEnd::Exit, Tick(5)))];
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).ends, expected.into());
    assert_eq!(story.0.finish(EventClass::Map, NOW).ends, expected.into());
}

#[test]
fn processes_have_separate_totals() {
    let story = Story::new().alloc_in(1, A, 10).alloc_in(2, A, 20).alloc_in(1, B, 30);
    let live =
        |pid| story.0.snapshot(EventClass::Heap, NOW).images[&ImageId { pid: Pid(pid), ordinal: 0 }].total.live();
    assert_eq!(live(1), Amount { bytes: Bytes(40), count: 2 });
    assert_eq!(live(2), Amount::one(Bytes(20)));
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn ended_images_are_taken_once_with_their_stacks() {
    let mut story = Story::new().stack(S).alloc(A, 10, S).exec().stack(R).alloc(B, 4, R).exit(7).exit(8);
    let id = |ordinal| ImageId { pid: PID, ordinal };
    let ended = story.0.take_ended();
    let ends: Vec<_> = ended.iter().map(|image| (image.id, image.end, image.at, image.usage.len())).collect();
    let (exec, exit) = (ImageEnd::Exec, ImageEnd::Exit);
    assert_eq!(ends, [(id(0), exec, Tick(0), 1), (id(1), exit, Tick(7), 1), (id(2), exit, Tick(8), 0)]);
    let stacks: Vec<Vec<_>> = ended.iter().map(|image| image.stacks.ids().collect()).collect();
    assert_eq!(stacks, [vec![S], vec![R], vec![]]);
    assert!(story.0.take_ended().is_empty());
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW), Snapshot::default());
}

#[test]
fn an_image_whose_exit_was_lost_can_be_ended() {
    let mut story = Story::new().alloc(A, 10, S).exec().alloc(B, 4, R);
    for ordinal in [0, 1, 1] {
        story.0.end_if_running(ImageId { pid: PID, ordinal }, ImageEnd::Exit, Tick(9));
    }
    assert_eq!(story.image(1).total.exit(), Amount::one(Bytes(4)));
    let ends: Vec<_> = story.0.take_ended().iter().map(|image| (image.id.ordinal, image.end)).collect();
    assert_eq!(ends, [(0, ImageEnd::Exec), (1, ImageEnd::Exit)]);
    assert_eq!(story.alloc(A, 1, S).image(2).total.live(), Amount::one(Bytes(1)));
}

#[test]
fn a_forked_child_keeps_the_stacks_of_its_parent() {
    let child = Pid(200);
    let touch = |stack| EventKind::Fault { page: AbsAddr(A), touch: Touch { write: true, ..Touch::default() }, stack };
    let story = Story::new().stack(S).stack(R).event(PID, T1, 0, touch(S)).event(PID, T1, 0, EventKind::Fork { child });
    let mut story = story.event(PID, T1, 0, touch(R)).exit(5);
    assert_eq!(story.0.take_ended()[0].stacks.len(), 2);
    let snapshot = story.0.snapshot(EventClass::Fault, NOW);
    let image = &snapshot.images[&ImageId { pid: child, ordinal: 0 }];
    assert_eq!(image.by_stack.keys().map(|key| key.stack).collect::<Vec<_>>(), [S]);
    assert_eq!(snapshot.stacks.ids().collect::<Vec<_>>(), [S]);
    assert_eq!(snapshot.stacks.end_of(S), StackEnd::Complete);
}
