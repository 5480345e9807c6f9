//! Sampled blocks, and profiles that targets keep.

use memtrace_model::{ProfileChange, Sample, SampleSum, Variance};

use super::*;
use crate::account_changes::WaterMarks;

/// A sampled block that stands for 1,000 bytes in 100 blocks.
const SAMPLE: Sample =
    Sample { amount: Amount { bytes: Bytes(1000), count: 100 }, bytes_variance: (3 << 40) + 5, count_variance: 7 };

/// Another sampled block.
const OTHER: Sample =
    Sample { amount: Amount { bytes: Bytes(400), count: 8 }, bytes_variance: 1 << 41, count_variance: 11 };

impl Story {
    fn sampled(self, address: u64, sample: Sample, stack: StackId) -> Self {
        let (address, size, sample) = (AbsAddr(address), Bytes(10), Box::new(sample));
        let (allocator, tag) = (AllocatorId::UNKNOWN, TagId::UNTAGGED);
        self.event(PID, T1, 5, EventKind::SampledAlloc { address, size, sample, thinning: 0, stack, allocator, tag })
    }

    fn free_sampled(self, address: u64) -> Self {
        self.event(PID, T1, 6, EventKind::SampledFree { address: AbsAddr(address) })
    }

    /// Reads the profile of the image with this ordinal.
    fn read(self, ordinal: u32, reading: u32, changes: &[ProfileChange]) -> Self {
        let image = ImageId { pid: PID, ordinal };
        self.event(PID, T1, 7, EventKind::HeapProfile { image, reading, changes: changes.into() })
    }
}

/// Returns a change of a stack by these numbers of samples, each of which stands for one block of 100 bytes.
fn change(stack: StackId, alloc: u64, free: u64) -> ProfileChange {
    let sum = |samples| SampleSum::of_poisson(samples, Bytes(100), Bytes(1), 0);
    ProfileChange { stack, allocator: AllocatorId::UNKNOWN, alloc: sum(alloc), free: sum(free) }
}

/// Returns the numbers of samples, and the variances of bytes and blocks, of held and of allocated blocks.
fn spreads(usage: &Quantities) -> [(u64, u128, u128); 2] {
    let of = |samples, bytes, count| (usage[samples], usage.variance(bytes), usage.variance(count));
    [
        of(Quantity::HeldSamples, Variance::HeldBytes, Variance::HeldCount),
        of(Quantity::AllocSamples, Variance::AllocBytes, Variance::AllocCount),
    ]
}

const NONE: (u64, u128, u128) = (0, 0, 0);
const OF_SAMPLE: (u64, u128, u128) = (1, (3 << 40) + 5, 7);
const OF_BOTH: (u64, u128, u128) = (2, (5 << 40) + 5, 18);

fn amounts(usage: &Quantities) -> [(u64, u64); 3] {
    [usage.live(), usage.alloc(), usage.free()].map(|amount| (amount.bytes.0, amount.count))
}

#[test]
fn a_sampled_block_counts_as_the_blocks_that_it_stands_for() {
    let story = Story::new().sampled(A, SAMPLE, S).sampled(B, OTHER, S).alloc(A + 64, 16, S);
    assert_eq!(amounts(&story.total()), [(1416, 109), (1416, 109), (0, 0)]);
    assert_eq!(spreads(&story.total()), [OF_BOTH, OF_BOTH]);
    assert_eq!(story.image(0).by_stack[&S.into()], story.total());
    // A free that is not by a sampler frees the block, too.
    let story = story.free_sampled(B).free(A + 64);
    assert_eq!(amounts(&story.total()), [(1000, 100), (1416, 109), (416, 9)]);
    assert_eq!(spreads(&story.total()), [OF_SAMPLE, OF_BOTH]);
    let story = story.free(A);
    assert_eq!(amounts(&story.total()), [(0, 0), (1416, 109), (1416, 109)]);
    assert_eq!(spreads(&story.total()), [NONE, OF_BOTH]);
    assert_eq!((story.0.live(), story.0.losses().total()), (Amount::default(), 0));
}

#[test]
fn samplers_free_sampled_blocks_only() {
    let story = Story::new().alloc(A, 10, S).free_sampled(A).free_sampled(B);
    let image = story.image(0);
    assert_eq!((image.unmatched_samples, image.unmatched_frees), (2, 0));
    assert_eq!(amounts(&story.total())[0], (10, 1));
}

#[test]
fn the_live_blocks_of_forged_samples_are_never_none() {
    // If a sample had no limit, 512 times 2^55 bytes and blocks would be 2^64, which wraps to 0.
    let forged = Sample::of_weighted(Bytes(1), Bytes(1 << 55), 0);
    let story = Story::with(Settings { blocks: 4096, stacks: 1, ..WIDE });
    let story = (0..512).fold(story, |story, nth| story.sampled(A + (nth << 4), forged, S));
    let story = story.alloc(B << 4, 10, R).alloc((B << 4) + 16, 10, R);
    // The stack is live, so it is not merged to make room for the other one.
    assert_eq!(story.image(0).by_stack[&S.into()].live().count, 512 << 32);
    assert_eq!(story.lost(LossReason::StacksFull), 2);
}

#[test]
fn a_reused_address_frees_the_earlier_sample() {
    let story = Story::new().sampled(A, SAMPLE, S).sampled(A, OTHER, R);
    assert_eq!(story.lost(LossReason::FreeUnseen), 1);
    assert_eq!(amounts(&story.total()), [(400, 8), (1400, 108), (1000, 100)]);
    assert_eq!(spreads(&story.image(0).by_stack[&S.into()]), [NONE, OF_SAMPLE]);
    let story = story.alloc(A, 10, R).free_sampled(A);
    assert_eq!((amounts(&story.total())[0], spreads(&story.total())[0]), ((10, 1), NONE));
}

#[test]
fn a_failed_realloc_restores_the_sample() {
    let story = Story::new().sampled(A, SAMPLE, S).free_tentatively(T1, A);
    assert_eq!(spreads(&story.total()), [NONE, OF_SAMPLE]);
    let story = story.undo_free(T1, A);
    assert_eq!(amounts(&story.total()), [(1000, 100), (1000, 100), (0, 0)]);
    assert_eq!(spreads(&story.total()), [OF_SAMPLE, OF_SAMPLE]);
    assert_eq!(spreads(&story.free_sampled(A).total())[0], NONE);
}

#[test]
fn samples_of_live_blocks_are_held_at_exit() {
    let story = Story::new().sampled(A, SAMPLE, S).sampled(B, OTHER, S).free_sampled(B).exit(9);
    let total = story.total();
    assert_eq!((total.exit(), spreads(&total)), (SAMPLE.amount, [OF_SAMPLE, OF_BOTH]));
    let story = Story::new().sampled(A, SAMPLE, S).exec();
    let total = story.total();
    assert_eq!((total.discarded(), spreads(&total)), (SAMPLE.amount, [NONE, OF_SAMPLE]));
}

#[test]
fn a_sampled_block_takes_the_room_of_four() {
    let settings = Settings { blocks: 6, ..WIDE };
    let story = Story::with(settings).sampled(A, SAMPLE, S).alloc(B, 10, S).sampled(B + 64, SAMPLE, S);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    let story = story.alloc(B + 64, 10, S).alloc(B + 128, 10, S);
    assert_eq!(story.lost(LossReason::LedgerFull), 2);
    let story = story.free_sampled(A).sampled(A, SAMPLE, S);
    assert_eq!((story.lost(LossReason::LedgerFull), story.total().live().count), (2, 102));
    let story = story.exit(9).alloc_in(7, A, 1).alloc_in(7, B, 1);
    assert_eq!((story.lost(LossReason::LedgerFull), story.0.live().count), (2, 2), "the room is free again");
}

#[test]
fn a_stack_of_sampled_blocks_takes_the_room_of_two() {
    let settings = Settings { stacks: 4, ..WIDE };
    let story = Story::with(settings).sampled(A, SAMPLE, S).sampled(B, OTHER, S).alloc(B + 64, 10, R);
    let story = story.alloc(B + 128, 10, StackId(1 << 40)).alloc(B + 192, 10, StackId(2 << 40));
    assert_eq!(story.lost(LossReason::StacksFull), 1, "no stack is idle");
    let story = story.free_sampled(A).free_sampled(B).alloc(B + 256, 10, StackId(3 << 40));
    assert_eq!(story.lost(LossReason::StacksFull), 2, "a merge follows the next request");
    // The merge of the idle stack makes room for two stacks.
    let story = story.alloc(B + 320, 10, StackId(4 << 40)).alloc(B + 384, 10, StackId(5 << 40));
    assert_eq!((story.lost(LossReason::StacksFull), story.image(0).merged_stacks), (2, 1));
    let story = story.alloc(B + 448, 10, StackId(6 << 40));
    assert_eq!(story.lost(LossReason::StacksFull), 3);
    // The end of the image gives all room back.
    let mut story = story.exit(9);
    story.0.take_ended();
    let story = (1..=4).fold(story, |story, nth| story.alloc(A + nth * 16, 10, StackId(nth << 40)));
    assert_eq!(story.lost(LossReason::StacksFull), 3);
}

#[test]
fn small_sampled_blocks_of_a_demoted_process_are_dropped() {
    let mut story = Story::new().sampled(A, SAMPLE, S).alloc(B, 4096, S);
    story.0.demote(Demoted { image: ImageId { pid: PID, ordinal: 0 }, min_size: Bytes(64), at: Tick(7) });
    let story = story.sampled(A, OTHER, S).free_sampled(A);
    let image = story.image(0);
    assert_eq!(amounts(&image.total)[..2], [(4096, 1), (5496, 109)]);
    assert_eq!(spreads(&image.total), [NONE, OF_BOTH]);
    assert_eq!((image.demotion.dropped, image.demotion.frees), (SAMPLE.amount + OTHER.amount, 1));
}

#[test]
fn old_samples_are_those_of_old_blocks() {
    let settings = Settings { older: Some(Tick(300).since_start()), ..WIDE };
    let young = EventKind::SampledAlloc {
        address: AbsAddr(B),
        size: Bytes(10),
        sample: Box::new(OTHER),
        thinning: 0,
        stack: S,
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let story = Story::with(settings).sampled(A, SAMPLE, S).event(PID, T1, 701, young).read(0, 0, &[change(R, 3, 0)]);
    let total = story.total();
    // The ages of the blocks of a profile are not known.
    assert_eq!((total.live(), total.left_out()), (SAMPLE.amount, Amount { bytes: Bytes(700), count: 11 }));
    assert_eq!(spreads(&total), [OF_SAMPLE, (5, (5 << 40) + 5, 18)]);
}

#[test]
fn touches_of_a_sampled_block_are_scaled() {
    let part = |bytes, amount| heap::scaled(Bytes(bytes), Bytes(amount), Bytes(64));
    assert_eq!([part(64, 6400), part(16, 6400), part(0, 6400)], [Bytes(6400), Bytes(1600), Bytes(0)]);
    assert_eq!([part(16, 64), part(64, u64::MAX)], [Bytes(16), Bytes(u64::MAX)]);
}

#[test]
fn a_reading_changes_the_totals_of_stacks() {
    let story = Story::new().read(0, 0, &[change(S, 10, 4), change(R, 2, 0)]);
    assert_eq!(amounts(&story.total()), [(800, 8), (1200, 12), (400, 4)]);
    let story = story.read(0, 1, &[]).read(0, 2, &[change(S, 1, 7), change(S, 5, 2)]);
    assert_eq!(amounts(&story.image(0).by_stack[&S.into()]), [(300, 3), (1600, 16), (1300, 13)]);
    assert_eq!(spreads(&story.total()), [(5, 0, 0), (18, 0, 0)]);
    assert_eq!((story.0.live().count, story.0.losses().total()), (5, 0));
    let story = story.exit(9);
    assert_eq!(story.total().exit(), Amount { bytes: Bytes(500), count: 5 });
    assert_eq!(story.0.live(), Amount::default());
}

#[test]
fn a_reading_needs_the_one_before_it() {
    let story = Story::new().read(0, 1, &[change(S, 10, 0)]).read(0, 0, &[change(S, 1, 0)]);
    let story = story.read(0, 0, &[change(S, 10, 0)]).read(0, 1, &[change(S, 1, 0)]).read(0, 3, &[change(S, 10, 0)]);
    assert_eq!((amounts(&story.total())[0], story.lost(LossReason::ProfileUnread)), ((200, 2), 3));
    // The next image has a profile of its own.
    let story = story.exec().read(0, 2, &[change(S, 10, 0)]).read(1, 0, &[change(S, 4, 0)]);
    assert_eq!((story.image(1).total.live().count, story.lost(LossReason::ProfileLate)), (4, 1));
    assert_eq!(story.lost(LossReason::ProfileUnread), 3);
}

#[test]
fn a_lost_first_reading_is_reported() {
    let image = ImageId { pid: PID, ordinal: 0 };
    let mut story = Story::with(Settings { processes: 1, ..WIDE }).alloc_in(7, A, 1).read(0, 0, &[change(S, 10, 0)]);
    assert_eq!((story.lost(LossReason::ProcessesFull), story.0.take_refused()), (1, vec![image]));
    let mut story = story.event(Pid(7), Tid(7), 8, EventKind::Exit);
    assert_eq!(story.0.take_ended().len(), 1);
    // There is room for the process now, but its first reading is missing.
    let mut story = story.read(0, 1, &[change(S, 1, 0)]);
    assert_eq!((story.lost(LossReason::ProfileUnread), story.0.take_refused()), (1, vec![image]));
    let mut story = story.read(0, 0, &[change(S, 11, 0)]).read(0, 2, &[change(S, 1, 0)]);
    assert_eq!((story.total().live().count, story.lost(LossReason::ProfileUnread)), (11, 2));
    assert_eq!(story.0.take_refused(), [], "it has a reading");
}

#[test]
fn the_profile_of_shared_memory_is_that_of_its_owner() {
    let child = Pid(PID.0 + 1);
    let share = EventKind::Share { child, is_traced: true };
    let kind = EventKind::HeapProfile {
        image: ImageId { pid: child, ordinal: 0 },
        reading: 0,
        changes: [change(S, 5, 0)].into(),
    };
    let story = Story::new().alloc(A, 10, R).event(PID, T1, 5, share).event(child, T1, 7, kind);
    assert_eq!((amounts(&story.total())[0], story.lost(LossReason::ProfileLate)), ((10, 1), 1));
    let story = story.read(0, 0, &[change(S, 3, 0)]);
    assert_eq!((amounts(&story.total())[0], story.lost(LossReason::ProfileUnread)), ((310, 4), 0));
}

#[test]
fn stacks_of_a_profile_that_did_not_fit_are_never_negative() {
    let story = Story::with(Settings { stacks: 1, ..WIDE }).read(0, 0, &[change(S, 1, 0), change(R, 10, 0)]);
    assert_eq!(story.lost(LossReason::StacksFull), 1);
    let story = story.read(0, 1, &[change(S, 0, 1)]).read(0, 2, &[change(R, 3, 0)]);
    assert_eq!(story.lost(LossReason::StacksFull), 2);
    // The stack S is idle, so R gets its place.
    let story = story.read(0, 3, &[change(R, 4, 0)]);
    let live = |story: &Story, stack: StackId| amounts(&story.image(0).by_stack[&stack.into()])[0];
    assert_eq!((live(&story, R), live(&story, StackId::FAILED)), ((400, 4), (1300, 13)));
    let story = story.read(0, 4, &[change(R, 0, 6)]);
    assert_eq!((live(&story, R), live(&story, StackId::FAILED)), ((0, 0), (1100, 11)));
    assert_eq!(story.lost(LossReason::BadRecord), 0);
    // A damaged profile has more frees than allocations.
    let story = story.read(0, 5, &[change(R, 0, 20)]);
    assert_eq!((live(&story, R), live(&story, StackId::FAILED)), ((0, 0), (0, 0)));
    assert_eq!((story.total().live(), story.lost(LossReason::BadRecord)), (Amount::default(), 1));
}

#[test]
fn marks_of_a_reading_are_those_of_its_sum() {
    let parts = Some(PartKeys::NONE);
    let settings = Settings { parts: PartKeys::THREAD, accounts: parts, track_peak: true, ..WIDE };
    let mut story = Story::with(settings).read(0, 0, &[change(S, 10, 0), change(R, 10, 10)]);
    let amount = |blocks| Amount { bytes: Bytes(blocks * 100), count: blocks };
    let changes = story.0.take_accounts().expect("there are accounts");
    assert_eq!(changes.marks, WaterMarks { low: amount(0), high: amount(10) });
    assert_eq!(changes.images[0].accounts[0].marks, changes.marks);
    assert_eq!(changes.images[0].accounts[0].counters.alloc, amount(20));
    let mut story = story.read(0, 1, &[change(S, 5, 10)]);
    let changes = story.0.take_accounts().expect("there are accounts");
    assert_eq!(changes.marks, WaterMarks { low: amount(5), high: amount(10) });
    assert_eq!(changes.images[0].accounts[0].marks, changes.marks);
    assert_eq!(story.image(0).peak, Some(Bytes(1000)));
}
