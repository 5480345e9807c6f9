//! Limits and their losses.

use super::*;

#[test]
fn frames_beyond_the_maximum_are_left_out_if_all_stacks_are_live() {
    let story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).stack(S).alloc(A, 10, S).stack(R);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let Snapshot { stacks, .. } = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(stacks.ids_with_frames().collect::<Vec<_>>(), [S]);
    assert_eq!(stacks.end_of(R), StackEnd::Merged, "the frames arrived");
}

#[test]
fn a_stack_without_live_blocks_loses_its_frames_first() {
    let story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).alloc(A, 10, S).free(A).stack(R);
    assert_eq!(story.0.losses().total(), 0);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!((snapshot.stacks.end_of(S), snapshot.stacks.end_of(R)), (StackEnd::Merged, StackEnd::Complete));
    // BPF sends the frames of a stack again after its id was evicted from the map of sent stacks.
    let snapshot = story.stack(S).0.snapshot(EventClass::Heap, NOW);
    assert_eq!((snapshot.stacks.end_of(S), snapshot.stacks.end_of(R)), (StackEnd::Complete, StackEnd::Merged));
}

#[test]
fn ids_of_merged_stacks_without_totals_are_forgotten() {
    let first = StackId(90);
    let story = |others: u64| {
        let story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).alloc(A, 10, S).free(A);
        (0..=others).map(|nth| StackId(first.0 + nth)).fold(story, Story::stack)
    };
    // Each stack merges the one before it.
    let (before, after) = (story(3), story(4));
    let ends = |story: &Story| [S, first].map(|id| story.0.snapshot(EventClass::Heap, NOW).stacks.end_of(id));
    assert_eq!((before.image(0).has_forgotten, ends(&before)), (false, [StackEnd::Merged; 2]));
    assert_eq!((after.image(0).has_forgotten, ends(&after)), (true, [StackEnd::Merged, StackEnd::FramesLost]));
    let ended = after.exit(1).0.take_ended();
    assert!(ended[0].usage[0].1.has_forgotten);
}

#[test]
fn the_smallest_stack_without_live_blocks_is_merged() {
    let [t, u] = [StackId(90), StackId(91)];
    let story = Story::with(Settings { stacks: 4, track_peak: true, ..WIDE });
    let story = story.alloc(A, 10, S).free(A).alloc(A, 30, R).free(A).alloc(A, 20, t).free(A).alloc(A, 1, u);
    let (before, story) = (story.image(0), story.alloc(B, 5, u));
    let image = story.image(0);
    assert_eq!(image.by_stack.keys().map(|key| key.stack).collect::<Vec<_>>(), [StackId::OTHER, R, t, u]);
    assert_eq!(image.by_stack[&StackId::OTHER.into()], usage((0, 0), (10, 1), (10, 1)));
    assert_eq!((image.merged_stacks, before.merged_stacks), (1, 0));
    assert_eq!(image.total, usage((6, 2), (66, 5), (60, 3)));
    assert_eq!((image.peak, story.0.losses().total()), (Some(Bytes(30)), 0));
    // A merged stack that allocates again is a stack of its own.
    assert_eq!(story.alloc(B + 16, 7, S).image(0).by_stack[&S.into()], usage((7, 1), (7, 1), (0, 0)));
}

#[test]
fn the_peak_of_a_merged_stack_is_kept() {
    let story = Story::with(Settings { stacks: 2, track_peak: true, ..WIDE });
    let story = story.alloc(A, 10, S).alloc(B, 20, StackId::NOT_TAKEN).free(A).alloc(A, 1, R).free(B);
    let image = story.image(0);
    let at_peak = |stack: StackId| Bytes(image.by_stack[&stack.into()][Quantity::AtPeakBytes]);
    assert_eq!(image.peak, Some(Bytes(30)));
    assert_eq!([StackId::OTHER, StackId::NOT_TAKEN, R].map(at_peak), [Bytes(10), Bytes(20), Bytes(0)]);
}

#[test]
fn a_stack_with_a_tentative_free_is_not_merged() {
    let story = Story::with(Settings { stacks: 1, ..WIDE });
    let story = story.alloc(A, 10, S).free_tentatively(T1, A).alloc(B, 20, R).undo_free(T1, A);
    assert_eq!(story.image(0).by_stack[&S.into()], usage((10, 1), (10, 1), (0, 0)));
    assert_eq!(story.lost(LossReason::StacksFull), 1);
}

#[test]
fn an_image_returns_its_share_of_the_limit() {
    let mut story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).alloc(A, 10, S).exec();
    // An ended image that was not taken still uses memory.
    story = story.stack(R).alloc(A, 10, R);
    assert_eq!(story.lost(LossReason::StacksFull), 2);
    assert_eq!(story.0.take_ended().len(), 1);
    story = story.stack(S).alloc(B, 10, S);
    assert_eq!(story.lost(LossReason::StacksFull), 2);
}

#[test]
fn exited_processes_need_no_room() {
    let mut story = Story::with(Settings { processes: 1, ..WIDE });
    for pid in 1..100_000 {
        story = story.alloc_in(pid, A, 10).event(Pid(pid), T1, 0, EventKind::Exit);
        let ended = story.0.take_ended();
        assert_eq!(ended.iter().map(|image| image.id).collect::<Vec<_>>(), [ImageId { pid: Pid(pid), ordinal: 0 }]);
    }
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn blocks_of_stacks_beyond_the_maximum_have_no_stack() {
    let story = Story::with(Settings { stacks: 1, ..WIDE });
    let story = story.alloc(A, 1, StackId::NOT_TAKEN).alloc(A + 16, 10, S).alloc(A + 32, 20, R).alloc(A + 48, 30, S);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let image = story.image(0);
    assert_eq!(image.by_stack[&S.into()].live().bytes, Bytes(40));
    assert_eq!(image.by_stack[&StackId::FAILED.into()].live().bytes, Bytes(20));
    assert_eq!(image.by_stack[&StackId::NOT_TAKEN.into()].live().bytes, Bytes(1));
    assert_eq!(image.by_stack.len(), 3);
}

#[test]
fn ends_beyond_the_maximum_are_lost() {
    let exits = |story: Story| story.exit(1).exit(2).exit(3);
    let story = exits(Story::with(Settings { processes: 2, ..WIDE }));
    assert_eq!((story.0.snapshot(EventClass::Heap, NOW).ends.len(), story.lost(LossReason::ProcessesFull)), (2, 1));
}

#[test]
fn blocks_beyond_the_maximum_are_lost() {
    let story = Story::with(Settings { blocks: 1, ..WIDE }).alloc(A, 10, S).alloc(B, 20, R);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
    let story = story.free(B).alloc(A, 30, S);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    assert_eq!(story.image(0).unmatched_frees, 1);
    let story = story.free(A).alloc(B, 40, S);
    assert_eq!(story.total().live(), Amount::one(Bytes(40)));
    // The lost block did not add a stack.
    assert!(!story.image(0).by_stack.contains_key(&R.into()));
}

#[test]
fn processes_beyond_the_maximum_are_lost() {
    let story = Story::with(Settings { processes: 1, ..WIDE }).alloc_in(1, A, 10).alloc_in(2, A, 20);
    let story = story.event(Pid(2), T1, 0, EventKind::Exit).alloc_in(1, B, 30);
    assert_eq!(story.lost(LossReason::ProcessesFull), 2);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).total().live(), Amount { bytes: Bytes(40), count: 2 });
    // The images of one process count too.
    let story = story.event(Pid(1), T1, 0, EventKind::Exec).alloc_in(1, A, 50);
    assert_eq!(story.lost(LossReason::ProcessesFull), 3);
}

#[test]
fn parts_beyond_the_maximum_count_for_the_process() {
    let settings = Settings { parts: PartKeys::THREAD, stacks: 1, ..WIDE };
    let alloc = |address| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: StackId::NOT_TAKEN,
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let story = Story::with(settings).event(PID, T1, 0, alloc(A)).event(PID, T2, 0, alloc(B));
    let image = story.image(0);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let keys: Vec<_> = image.by_stack.keys().copied().collect();
    let first = StackKey { stack: StackId::NOT_TAKEN, part: Part::WHOLE.with_thread(T1) };
    assert_eq!(keys, [first, StackId::FAILED.into()]);
}
