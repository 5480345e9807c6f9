//! One test for each rule of the ledger.

mod accounts;
mod demotions;
mod ended_threads;
mod epochs;
mod images;
mod left_out_pages;
mod limits;
mod owners;
mod parts;
mod samples;
mod sharers;
mod stalls;
mod tentative_frees;
mod thinning;

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, EventClass, ImageId, ImageUsage, PartKeys, Quantities, Quantity, Snapshot, Stack,
    StackEnd, StackId, TagId, Tid, Touch,
};

use super::*;

const PID: Pid = Pid(100);
const T1: Tid = Tid(101);
const T2: Tid = Tid(102);
const A: u64 = 0x7f00_0000_1000;
const B: u64 = 0x7f00_0000_2000;
const S: StackId = StackId(77);
const R: StackId = StackId(88);
const NOW: Tick = Tick(1000);
const WIDE: Settings = Settings {
    blocks: 1000,
    stacks: 1000,
    processes: 1000,
    track_peak: false,
    older: None,
    lifetimes: false,
    page_sample: 1,
    parts: PartKeys::NONE,
    accounts: None,
};

/// Ledger with short methods that apply events.
struct Story(Ledger);

impl Story {
    fn new() -> Self {
        Self::with(WIDE)
    }

    fn with(settings: Settings) -> Self {
        Self(Ledger::new(settings))
    }

    fn event(mut self, pid: Pid, tid: Tid, tick: u32, kind: EventKind) -> Self {
        self.0.apply(&Event { pid, tid, tick: Tick(tick), kind });
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
            EventKind::Alloc {
                address: AbsAddr(address),
                size: Bytes(size),
                stack,
                allocator: AllocatorId::UNKNOWN,
                tag: TagId::UNTAGGED,
            },
        )
    }

    fn alloc_in(self, pid: u32, address: u64, size: u64) -> Self {
        let kind = EventKind::Alloc {
            address: AbsAddr(address),
            size: Bytes(size),
            stack: S,
            allocator: AllocatorId::UNKNOWN,
            tag: TagId::UNTAGGED,
        };
        self.event(Pid(pid), T1, 0, kind)
    }

    fn free(self, address: u64) -> Self {
        self.event(PID, T1, 0, EventKind::Free { address: AbsAddr(address), is_last: false })
    }

    fn free_tentatively(self, tid: Tid, address: u64) -> Self {
        self.event(PID, tid, 0, EventKind::TentativeFree { address: AbsAddr(address), is_last: false })
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

    fn total(&self) -> Quantities {
        self.image(0).total
    }

    fn lost(&self, reason: LossReason) -> u64 {
        self.0.losses().get(reason)
    }
}

fn usage(live: (u64, u64), alloc: (u64, u64), free: (u64, u64)) -> Quantities {
    let amount = |(bytes, count)| Amount { bytes: Bytes(bytes), count };
    Quantities::ZERO
        .with_amount(Quantity::LiveBytes, amount(live))
        .with_amount(Quantity::AllocBytes, amount(alloc))
        .with_free(amount(free))
}

#[test]
fn an_empty_ledger_gives_an_empty_snapshot() {
    assert_eq!(Story::new().0.snapshot(EventClass::Heap, NOW), Snapshot::default());
}

#[test]
fn blocks_count_for_the_stack_that_allocated_them() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, R).free(A);
    let image = story.image(0);
    assert_eq!(image.by_stack[&S.into()], usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(image.by_stack[&R.into()], usage((20, 1), (20, 1), (0, 0)));
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
    assert_eq!(story.image(0).by_stack[&S.into()], usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.0.live(), Amount::one(Bytes(20)));
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
    let at_peak =
        |id: StackId| image.by_stack.get(&id.into()).map(|stack: &Quantities| Bytes(stack[Quantity::AtPeakBytes]));
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
    assert_eq!((ended.live(), ended.exit()), (Amount::default(), Amount { bytes: Bytes(30), count: 2 }));
}

#[test]
fn no_block_is_older_than_the_trace() {
    let older = Some(NOW.since_start() + Duration::from_nanos(1));
    assert_eq!(Story::with(Settings { older, ..WIDE }).alloc(A, 10, S).total().live(), Amount::default());
}
