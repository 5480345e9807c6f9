//! Limits and their losses.

use super::*;

#[test]
fn stacks_beyond_the_maximum_are_lost() {
    let story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).stack(S).stack(R);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).stacks.ids().collect::<Vec<_>>(), [S]);
}

#[test]
fn blocks_of_stacks_beyond_the_maximum_have_no_stack() {
    let story = Story::with(Settings { stacks: 1, ..WIDE });
    let story = story.alloc(A, 1, StackId::NOT_TAKEN).alloc(A + 16, 10, S).alloc(A + 32, 20, R).alloc(A + 48, 30, S);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let image = story.image(0);
    assert_eq!(image.by_stack[&S.into()].usage.live.bytes, Bytes(40));
    assert_eq!(image.by_stack[&StackId::FAILED.into()].usage.live.bytes, Bytes(20));
    assert_eq!(image.by_stack[&StackId::NOT_TAKEN.into()].usage.live.bytes, Bytes(1));
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
    assert_eq!(story.total().live, Amount::one(Bytes(40)));
    // The lost block did not add a stack.
    assert!(!story.image(0).by_stack.contains_key(&R.into()));
}

#[test]
fn processes_beyond_the_maximum_are_lost() {
    let story = Story::with(Settings { processes: 1, ..WIDE }).alloc_in(1, A, 10).alloc_in(2, A, 20);
    let story = story.event(Pid(2), T1, 0, EventKind::Exit).alloc_in(1, B, 30);
    assert_eq!(story.lost(LossReason::ProcessesFull), 2);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).total().live, Amount { bytes: Bytes(40), count: 2 });
    // The images of one process count too.
    let story = story.event(Pid(1), T1, 0, EventKind::Exec).alloc_in(1, A, 50);
    assert_eq!(story.lost(LossReason::ProcessesFull), 3);
}

#[test]
fn partitions_beyond_the_maximum_have_no_partition() {
    let settings = Settings { parts: PartitionBy::Threads, stacks: 1, ..WIDE };
    let alloc = |address| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: StackId::NOT_TAKEN,
        allocator: AllocatorId::UNKNOWN,
    };
    let story = Story::with(settings).event(PID, T1, 0, alloc(A)).event(PID, T2, 0, alloc(B));
    let image = story.image(0);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let keys: Vec<_> = image.by_stack.keys().copied().collect();
    let first = StackKey { stack: StackId::NOT_TAKEN, part: Partition::Thread(T1) };
    assert_eq!(keys, [first, StackId::FAILED.into()]);
}
