//! One test for each rule of the ledger.

mod owners;
mod stalls;

use std::time::Duration;

use super::*;
use crate::model::{AbsAddr, AllocatorId, Bytes, Snapshot, StackEnd, StackUsage, Tid, Usage};

const PID: Pid = Pid(100);
const T1: Tid = Tid(101);
const T2: Tid = Tid(102);
const A: u64 = 0x7f00_0000_1000;
const B: u64 = 0x7f00_0000_2000;
const S: StackId = StackId(77);
const R: StackId = StackId(88);
const NOW: Tick = Tick(1000);
const WIDE: Settings =
    Settings { blocks: 1000, stacks: 1000, processes: 1000, track_peak: false, older: None, parts: PartitionBy::Whole };

/// Ledger with short methods for events.
struct Story(Ledger);

impl Story {
    fn new() -> Self {
        Self::with(WIDE)
    }

    fn with(settings: Settings) -> Self {
        Self(Ledger::new(settings))
    }

    fn event(mut self, pid: Pid, tid: Tid, tick: u32, kind: EventKind) -> Self {
        self.0.apply(Event { pid, tid, tick: Tick(tick), kind });
        self
    }

    fn alloc(self, address: u64, size: u64, stack: StackId) -> Self {
        self.alloc_at(0, address, size, stack)
    }

    fn alloc_at(self, tick: u32, address: u64, size: u64, stack: StackId) -> Self {
        self.event(
            PID,
            T1,
            tick,
            EventKind::Alloc { address: AbsAddr(address), size: Bytes(size), stack, allocator: AllocatorId::UNKNOWN },
        )
    }

    fn alloc_in(self, pid: u32, address: u64, size: u64) -> Self {
        let kind = EventKind::Alloc {
            address: AbsAddr(address),
            size: Bytes(size),
            stack: S,
            allocator: AllocatorId::UNKNOWN,
        };
        self.event(Pid(pid), T1, 0, kind)
    }

    fn free(self, address: u64) -> Self {
        self.event(PID, T1, 0, EventKind::Free { address: AbsAddr(address) })
    }

    fn free_tentatively(self, tid: Tid, address: u64) -> Self {
        self.event(PID, tid, 0, EventKind::TentativeFree { address: AbsAddr(address) })
    }

    fn undo_free(self, tid: Tid, address: u64) -> Self {
        self.event(PID, tid, 0, EventKind::UndoFree { address: AbsAddr(address) })
    }

    fn stack(self, id: StackId) -> Self {
        let stack = Box::new(Stack { frames: [AbsAddr(id.0)].into(), end: StackEnd::Complete, taken: Duration::ZERO });
        self.event(PID, T1, 0, EventKind::Stack { id, stack })
    }

    fn exec(self) -> Self {
        self.event(PID, T1, 0, EventKind::Exec)
    }

    fn exit(self, tick: u32) -> Self {
        self.event(PID, T1, tick, EventKind::Exit)
    }

    fn image(&self, ordinal: u32) -> ImageUsage {
        self.0
            .snapshot(EventClass::Heap, NOW)
            .images
            .get(&ImageId { pid: PID, ordinal })
            .cloned()
            .expect("the image has usage")
    }

    fn total(&self) -> Usage {
        self.image(0).total
    }

    fn lost(&self, reason: LossReason) -> u64 {
        self.0.losses().get(reason)
    }
}

fn usage(live: (u64, u64), alloc: (u64, u64), free: (u64, u64)) -> Usage {
    let amount = |(bytes, count)| Amount { bytes: Bytes(bytes), count };
    Usage { live: amount(live), alloc: amount(alloc), free: amount(free), ..Usage::default() }
}

#[test]
fn an_empty_ledger_gives_an_empty_snapshot() {
    assert_eq!(Story::new().0.snapshot(EventClass::Heap, NOW), Snapshot::default());
}

#[test]
fn blocks_count_for_the_stack_that_allocated_them() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, R).free(A);
    let image = story.image(0);
    assert_eq!(image.by_stack[&S.into()].usage, usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(image.by_stack[&R.into()].usage, usage((20, 1), (20, 1), (0, 0)));
    assert_eq!(image.total, usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(image.ended, None);
    assert_eq!(image.peak, None);
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
    assert_eq!(story.0.events(), 3);
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn a_free_of_an_unknown_block_is_unmatched() {
    let story = Story::new().free(A).alloc(A, 10, S).free(A).free(A);
    assert_eq!(story.image(0).unmatched_frees, 2);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
}

#[test]
fn a_repeated_free_of_a_live_block_frees_it() {
    let again = || EventKind::RepeatedFree { address: AbsAddr(A) };
    let story = Story::new().event(PID, T1, 0, again()).alloc(A, 10, S).event(PID, T1, 0, again());
    assert_eq!((story.image(0).repeated_frees, story.image(0).unmatched_frees), (1, 0));
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    let story = story.event(PID, T1, 0, again());
    assert_eq!((story.image(0).repeated_frees, story.image(0).unmatched_frees), (2, 0));
}

#[test]
fn a_reused_address_reveals_a_lost_free() {
    let story = Story::new().alloc(A, 10, S).alloc(A, 20, R);
    assert_eq!(story.lost(LossReason::FreeUnseen), 1);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.image(0).by_stack[&S.into()].usage, usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
}

#[test]
fn a_tentative_free_is_a_free_until_undone() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    let story = story.undo_free(T1, A);
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
    let story = story.undo_free(T1, A).free(A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.image(0).unmatched_frees, 0);
}

#[test]
fn a_tentative_free_of_an_unknown_block_is_unmatched() {
    let story = Story::new().alloc(B, 1, S).free_tentatively(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    let story = story.undo_free(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 0);
    assert_eq!(story.total(), usage((1, 1), (1, 1), (0, 0)));
}

#[test]
fn an_undo_without_its_tentative_free_has_no_effect() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).free_tentatively(T1, A);
    let before = story.0.snapshot(EventClass::Heap, NOW);
    let story =
        story.undo_free(T2, A).undo_free(T1, B).event(Pid(9), T1, 0, EventKind::UndoFree { address: AbsAddr(A) });
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW), before);
    assert_eq!(story.undo_free(T1, A).total().live, Amount { bytes: Bytes(30), count: 2 });
}

#[test]
fn a_second_tentative_free_makes_the_first_final() {
    let story =
        Story::new().alloc(A, 10, S).alloc(B, 20, S).free_tentatively(T1, A).free_tentatively(T1, B).undo_free(T1, A);
    assert_eq!(story.total().live, Amount::default());
    assert_eq!(story.undo_free(T1, B).total().live, Amount::one(Bytes(20)));
}

#[test]
fn only_the_latest_unmatched_tentative_free_is_undone() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).free_tentatively(T1, A).free_tentatively(T2, A);
    assert_eq!(story.image(0).unmatched_frees, 2);
    let story = story.undo_free(T1, A).undo_free(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    // The first tentative free removed the block.
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
}

#[test]
fn a_block_that_grew_in_place_can_be_reallocated_again() {
    let story =
        Story::new().alloc(A, 10, S).free_tentatively(T1, A).alloc(A, 20, S).free_tentatively(T1, A).undo_free(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
}

#[test]
fn a_tentative_free_is_final_once_the_address_is_reused() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).alloc(A, 20, R).undo_free(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    // It cannot be undone, even after the address is free again.
    assert_eq!(story.free(A).undo_free(T1, A).total().live, Amount::default());
}

#[test]
fn stacks_are_kept_without_an_image() {
    let story = Story::new().stack(S);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(snapshot.stacks.get(S).unwrap().frames[..], [AbsAddr(S.0)]);
    assert!(snapshot.images.is_empty());
}

#[test]
fn frames_of_a_special_stack_id_are_a_bad_record() {
    let story = Story::new().stack(StackId::FAILED);
    assert_eq!(story.lost(LossReason::BadRecord), 1);
    assert!(story.0.snapshot(EventClass::Heap, NOW).stacks.is_empty());
}

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
fn exec_discards_live_blocks_and_starts_a_new_image() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).free(B).exec().free(A).alloc(B, 5, S);
    let first = story.image(0);
    assert_eq!(first.ended, Some(ImageEnd::Exec));
    assert_eq!(first.discarded, Amount::one(Bytes(10)));
    assert_eq!(first.total, usage((0, 0), (30, 2), (20, 1)));
    assert_eq!(first.by_stack[&S.into()].usage, first.total);
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
    assert_eq!(first.discarded, Amount::default());
    assert_eq!(first.total, Usage { exit: Amount::one(Bytes(10)), ..usage((0, 0), (14, 2), (4, 1)) });
    assert_eq!(first.by_stack[&S.into()].usage, first.total);
    assert_eq!(story.image(1).total, usage((20, 1), (20, 1), (0, 0)));
    // The old block does not count as a lost free, and no longer towards the maximum.
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
}

#[test]
fn a_tentative_free_cannot_be_undone_after_exec() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).exec().alloc(B, 1, S).undo_free(T1, A);
    assert_eq!(story.image(1).total, usage((1, 1), (1, 1), (0, 0)));
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
    // The first exec replaced an image without events.
    let expected =
        [(id(1), (ImageEnd::Exit, Tick(3))), (id(2), (ImageEnd::Exec, Tick(0))), (id(3), (ImageEnd::Exit, Tick(5)))];
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).ends, expected.into());
    assert_eq!(story.0.finish(EventClass::Map, NOW).ends, expected.into());
}

#[test]
fn ends_beyond_the_maximum_are_lost() {
    let exits = |story: Story| story.exit(1).exit(2).exit(3);
    let story = exits(Story::with(Settings { processes: 2, ..WIDE }));
    assert_eq!((story.0.snapshot(EventClass::Heap, NOW).ends.len(), story.lost(LossReason::ProcessesFull)), (2, 1));
}

#[test]
fn processes_have_separate_totals() {
    let story = Story::new().alloc_in(1, A, 10).alloc_in(2, A, 20).alloc_in(1, B, 30);
    let live = |pid| story.0.snapshot(EventClass::Heap, NOW).images[&ImageId { pid: Pid(pid), ordinal: 0 }].total.live;
    assert_eq!(live(1), Amount { bytes: Bytes(40), count: 2 });
    assert_eq!(live(2), Amount::one(Bytes(20)));
    assert_eq!(story.0.losses().total(), 0);
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
fn losses_of_records_are_added() {
    let mut story = Story::new();
    story.0.add_loss(LossReason::BadRecord, 3);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).losses.get(LossReason::BadRecord), 3);
}

#[test]
fn the_peak_is_the_high_water_mark_with_shares_by_stack() {
    let story = Story::with(Settings { track_peak: true, ..WIDE });
    let story = story.alloc(A, 10, S).alloc(B, 20, R).free(A).alloc(A, 5, R).free(B).alloc(B, 1, S);
    let image = story.image(0);
    assert_eq!(image.peak, Some(Bytes(30)));
    let at_peak = |id: StackId| image.by_stack.get(&id.into()).map(|stack: &StackUsage| stack.at_peak);
    assert_eq!((at_peak(S), at_peak(R)), (Some(Bytes(10)), Some(Bytes(20))));
}

#[test]
fn live_totals_contain_only_blocks_of_the_minimum_age() {
    let older = Some(Tick(300).since_start());
    let story = Story::with(Settings { older, ..WIDE });
    let story = story.alloc_at(700, A, 10, S).alloc_at(701, B, 20, S);
    assert_eq!(story.total(), usage((10, 1), (30, 2), (0, 0)));
    // Blocks do not age after the exit of their process.
    let ended = story.exit(1001).total();
    assert_eq!((ended.live, ended.exit), (Amount::default(), Amount { bytes: Bytes(30), count: 2 }));
}

#[test]
fn blocks_count_for_the_allocating_thread() {
    let alloc = |address| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId::UNKNOWN,
    };
    let image_by = |parts| {
        let story = Story::with(Settings { parts, ..WIDE });
        let story = story.event(PID, T1, 0, alloc(A)).event(PID, T2, 0, alloc(B));
        story.event(PID, T2, 0, EventKind::Free { address: AbsAddr(A) }).image(0)
    };
    let image = image_by(PartitionBy::Threads);
    let usage_of = |tid| image.by_stack[&StackKey { stack: S, part: Partition::Thread(tid) }].usage;
    assert_eq!(usage_of(T1), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(usage_of(T2), usage((10, 1), (10, 1), (0, 0)));
    assert_eq!(image.by_stack.len(), 2);
    let whole = image_by(PartitionBy::Whole);
    assert_eq!(whole.by_stack.keys().collect::<Vec<_>>(), [&S.into()]);
    assert_eq!(whole.total, image.total);
}

#[test]
fn blocks_count_for_their_allocator() {
    let alloc = |address, number| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId(number),
    };
    let story = Story::with(Settings { parts: PartitionBy::Allocators, ..WIDE });
    let story = story.event(PID, T1, 0, alloc(A, 1)).event(PID, T2, 0, alloc(B, 1)).event(PID, T1, 0, alloc(B, 0));
    let image = story.image(0);
    let usage_of =
        |number| image.by_stack[&StackKey { stack: S, part: Partition::Allocator(AllocatorId(number)) }].usage;
    assert_eq!(usage_of(1), usage((10, 1), (20, 2), (10, 1)));
    assert_eq!(usage_of(0), usage((10, 1), (10, 1), (0, 0)));
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

#[test]
fn no_block_is_older_than_the_trace() {
    let older = Some(NOW.since_start() + Duration::from_nanos(1));
    assert_eq!(Story::with(Settings { older, ..WIDE }).alloc(A, 10, S).total().live, Amount::default());
}
