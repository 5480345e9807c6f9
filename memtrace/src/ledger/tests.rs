//! One test for each rule of the books.

mod waits;

use super::*;
use crate::model::{AbsAddr, AllocatorId, Bytes, StackEnd, StackUsage, Tid, Usage};

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

/// A ledger and short words for what happens to it.
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

    fn park(self, tid: Tid, address: u64) -> Self {
        self.event(PID, tid, 0, EventKind::TentativeFree { address: AbsAddr(address) })
    }

    fn restore(self, tid: Tid, address: u64) -> Self {
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
            .expect("the image has books")
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
fn blocks_are_booked_under_the_stack_that_allocated_them() {
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
fn a_block_handed_out_again_was_freed_unseen() {
    let story = Story::new().alloc(A, 10, S).alloc(A, 20, R);
    assert_eq!(story.lost(LossReason::FreeUnseen), 1);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.image(0).by_stack[&S.into()].usage, usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
}

#[test]
fn a_park_counts_as_a_free_and_its_restore_undoes_it() {
    let story = Story::new().alloc(A, 10, S).park(T1, A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    let story = story.restore(T1, A);
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
    let story = story.restore(T1, A).free(A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.image(0).unmatched_frees, 0);
}

#[test]
fn a_park_of_an_unknown_block_is_unmatched_until_it_is_restored() {
    let story = Story::new().alloc(B, 1, S).park(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    let story = story.restore(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 0);
    assert_eq!(story.total(), usage((1, 1), (1, 1), (0, 0)));
}

#[test]
fn a_restore_of_what_the_thread_has_not_parked_changes_nothing() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).park(T1, A);
    let before = story.0.snapshot(EventClass::Heap, NOW);
    let story = story.restore(T2, A).restore(T1, B).event(Pid(9), T1, 0, EventKind::UndoFree { address: AbsAddr(A) });
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW), before);
    assert_eq!(story.restore(T1, A).total().live, Amount { bytes: Bytes(30), count: 2 });
}

#[test]
fn a_thread_that_parks_another_block_makes_the_first_park_final() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).park(T1, A).park(T1, B).restore(T1, A);
    assert_eq!(story.total().live, Amount::default());
    assert_eq!(story.restore(T1, B).total().live, Amount::one(Bytes(20)));
}

#[test]
fn each_park_of_an_unknown_block_is_unmatched_and_only_the_last_can_be_restored() {
    let story = Story::new().alloc(A, 10, S).park(T1, A).park(T1, A).park(T2, A);
    assert_eq!(story.image(0).unmatched_frees, 2);
    let story = story.restore(T1, A).restore(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    // The block itself went with the first park.
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
}

#[test]
fn a_block_that_grew_in_place_can_be_parked_by_the_same_thread_again() {
    let story = Story::new().alloc(A, 10, S).park(T1, A).alloc(A, 20, S).park(T1, A).restore(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
}

#[test]
fn a_parked_block_handed_out_again_stays_freed() {
    let story = Story::new().alloc(A, 10, S).park(T1, A).alloc(A, 20, R).restore(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    // The park is forgotten, even when the address is free again.
    assert_eq!(story.free(A).restore(T1, A).total().live, Amount::default());
}

#[test]
fn frames_are_remembered_and_cost_no_image() {
    let story = Story::new().stack(S);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(snapshot.stacks.get(S).unwrap().frames[..], [AbsAddr(S.0)]);
    assert!(snapshot.images.is_empty());
}

#[test]
fn frames_for_a_constant_that_stands_for_none_are_a_bad_record() {
    let story = Story::new().stack(StackId::FAILED);
    assert_eq!(story.lost(LossReason::BadRecord), 1);
    assert!(story.0.snapshot(EventClass::Heap, NOW).stacks.is_empty());
}

#[test]
fn frames_of_more_stacks_than_there_may_be_are_refused() {
    let story = Story::with(Settings { stacks: 1, ..WIDE }).stack(S).stack(S).stack(R);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).stacks.ids().collect::<Vec<_>>(), [S]);
}

#[test]
fn allocations_of_more_stacks_than_there_may_be_are_booked_without_theirs() {
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
fn exec_discards_what_was_live_and_the_next_event_opens_another_image() {
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
fn exit_keeps_what_was_live_and_a_pid_used_again_opens_another_image() {
    let story = Story::new().alloc(A, 10, S).exit(0).alloc(A, 20, S);
    let first = story.image(0);
    assert_eq!(first.ended, Some(ImageEnd::Exit));
    assert_eq!(first.discarded, Amount::default());
    assert_eq!(first.total, usage((10, 1), (10, 1), (0, 0)));
    assert_eq!(story.image(1).total, usage((20, 1), (20, 1), (0, 0)));
    // The old block is not mistaken for one whose free was not seen, and takes no more room.
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
}

#[test]
fn a_park_does_not_outlive_its_image() {
    let story = Story::new().alloc(A, 10, S).park(T1, A).exec().alloc(B, 1, S).restore(T1, A);
    assert_eq!(story.image(1).total, usage((1, 1), (1, 1), (0, 0)));
}

#[test]
fn images_without_books_are_counted_but_not_shown() {
    let story = Story::new().exec().exec().exit(0).alloc(A, 10, S);
    let snapshot = story.0.snapshot(EventClass::Heap, NOW);
    assert_eq!(snapshot.images.keys().collect::<Vec<_>>(), [&ImageId { pid: PID, ordinal: 3 }]);
}

#[test]
fn processes_have_books_of_their_own() {
    let story = Story::new().alloc_in(1, A, 10).alloc_in(2, A, 20).alloc_in(1, B, 30);
    let live = |pid| story.0.snapshot(EventClass::Heap, NOW).images[&ImageId { pid: Pid(pid), ordinal: 0 }].total.live;
    assert_eq!(live(1), Amount { bytes: Bytes(40), count: 2 });
    assert_eq!(live(2), Amount::one(Bytes(20)));
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn allocations_beyond_the_bound_are_lost_and_their_frees_unmatched() {
    let story = Story::with(Settings { blocks: 1, ..WIDE }).alloc(A, 10, S).alloc(B, 20, R);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
    let story = story.free(B).alloc(A, 30, S);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    assert_eq!(story.image(0).unmatched_frees, 1);
    let story = story.free(A).alloc(B, 40, S);
    assert_eq!(story.total().live, Amount::one(Bytes(40)));
    // The block lost did not take its stack's place in the books.
    assert!(!story.image(0).by_stack.contains_key(&R.into()));
}

#[test]
fn processes_beyond_the_bound_are_lost() {
    let story = Story::with(Settings { processes: 1, ..WIDE }).alloc_in(1, A, 10).alloc_in(2, A, 20);
    let story = story.event(Pid(2), T1, 0, EventKind::Exit).alloc_in(1, B, 30);
    assert_eq!(story.lost(LossReason::ProcessesFull), 2);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).total().live, Amount { bytes: Bytes(40), count: 2 });
    // Programs run one after the other by the same process are bounded too.
    let story = story.event(Pid(1), T1, 0, EventKind::Exec).alloc_in(1, A, 50);
    assert_eq!(story.lost(LossReason::ProcessesFull), 3);
}

#[test]
fn what_was_lost_before_it_became_an_event_is_counted() {
    let mut story = Story::new();
    story.0.add_loss(LossReason::BadRecord, 3);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).losses.get(LossReason::BadRecord), 3);
}

#[test]
fn the_peak_is_the_highest_that_live_bytes_ever_were_with_each_stacks_share() {
    let story = Story::with(Settings { track_peak: true, ..WIDE });
    let story = story.alloc(A, 10, S).alloc(B, 20, R).free(A).alloc(A, 5, R).free(B).alloc(B, 1, S);
    let image = story.image(0);
    assert_eq!(image.peak, Some(Bytes(30)));
    let at_peak = |id: StackId| image.by_stack.get(&id.into()).map(|stack: &StackUsage| stack.at_peak);
    assert_eq!((at_peak(S), at_peak(R)), (Some(Bytes(10)), Some(Bytes(20))));
}

#[test]
fn live_numbers_count_only_blocks_that_are_old_enough() {
    let older = Some(Tick(300).since_start());
    let story = Story::with(Settings { older, ..WIDE });
    let story = story.alloc_at(700, A, 10, S).alloc_at(701, B, 20, S);
    assert_eq!(story.total(), usage((10, 1), (30, 2), (0, 0)));
    // At its exit a process' blocks stop growing older.
    assert_eq!(story.exit(1001).total().live, Amount { bytes: Bytes(30), count: 2 });
}

#[test]
fn threads_that_are_kept_apart_have_what_they_allocated_whoever_frees_it() {
    let alloc = |address| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId::UNKNOWN,
    };
    let by = |parts| {
        let story = Story::with(Settings { parts, ..WIDE });
        let story = story.event(PID, T1, 0, alloc(A)).event(PID, T2, 0, alloc(B));
        story.event(PID, T2, 0, EventKind::Free { address: AbsAddr(A) }).image(0)
    };
    let image = by(PartitionBy::Threads);
    let of = |tid| image.by_stack[&StackKey { stack: S, part: Partition::Thread(tid) }].usage;
    assert_eq!(of(T1), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(of(T2), usage((10, 1), (10, 1), (0, 0)));
    assert_eq!(image.by_stack.len(), 2);
    let whole = by(PartitionBy::Whole);
    assert_eq!(whole.by_stack.keys().collect::<Vec<_>>(), [&S.into()]);
    assert_eq!(whole.total, image.total);
}

#[test]
fn allocators_that_are_kept_apart_have_what_they_handed_out() {
    let alloc = |address, number| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId(number),
    };
    let story = Story::with(Settings { parts: PartitionBy::Allocators, ..WIDE });
    let story = story.event(PID, T1, 0, alloc(A, 1)).event(PID, T2, 0, alloc(B, 1)).event(PID, T1, 0, alloc(B, 0));
    let image = story.image(0);
    let of = |number| image.by_stack[&StackKey { stack: S, part: Partition::Allocator(AllocatorId(number)) }].usage;
    assert_eq!(of(1), usage((10, 1), (20, 2), (10, 1)));
    assert_eq!(of(0), usage((10, 1), (10, 1), (0, 0)));
}

#[test]
fn parts_beyond_the_bound_are_booked_under_none_even_without_frames() {
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
