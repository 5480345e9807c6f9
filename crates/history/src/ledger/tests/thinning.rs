//! Thinning of samples.

use memtrace_model::{Delta, Sample, Variance, is_thinned, rounding_key};

use super::*;
use crate::account_changes::WaterMarks;

const SALT: u64 = 7;
const IMAGE: ImageId = ImageId { pid: PID, ordinal: 0 };

/// Numbers of a block of 64 bytes that was sampled as one of eight: the variances are 512² · 7/8 and 8² · 7/8.
const ONE: Numbers = Numbers { live: (512, 8), held: (1, 229_376, 56) };
/// Numbers of a block of 64 bytes that was sampled as one of sixteen: the variances are 1024² · 15/16 and 16² · 15/16.
const TWICE: Numbers = Numbers { live: (1024, 16), held: (1, 983_040, 240) };
const NOTHING: Numbers = Numbers { live: (0, 0), held: (0, 0, 0) };

/// Bytes and blocks that are live, and the number of their samples with the variances of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    live: (u64, u64),
    held: (u64, u128, u128),
}

impl Numbers {
    fn amount(self) -> Amount {
        Amount { bytes: Bytes(self.live.0), count: self.live.1 }
    }
}

/// Returns the numbers of live blocks. If `allocated` is true, the numbers of allocated blocks must equal them.
fn numbers(usage: &Quantities, allocated: bool) -> Numbers {
    let pair = |amount: Amount| (amount.bytes.0, amount.count);
    let of = |amount, samples, bytes, count| Numbers {
        live: pair(amount),
        held: (usage[samples], usage.variance(bytes), usage.variance(count)),
    };
    let held = of(usage.live(), Quantity::HeldSamples, Variance::HeldBytes, Variance::HeldCount);
    let alloc = of(usage.alloc(), Quantity::AllocSamples, Variance::AllocBytes, Variance::AllocCount);
    assert!(!allocated || held == alloc, "{held:?}, {alloc:?}");
    held
}

/// Returns the address of the n-th block that stays at the level 1 or, if `stays` is false, of the n-th block that is left
/// out there. A block that stays at the level 1 also stays at the level 2.
fn block(nth: usize, stays: bool) -> u64 {
    let is_wanted = |address: &u64| {
        let left_out = [is_thinned(*address, SALT, 0, 1), is_thinned(*address, SALT, 1, 2)];
        if stays { left_out == [false; 2] } else { left_out[0] }
    };
    (1..).map(|nth| A + (nth << 4)).filter(is_wanted).nth(nth).expect("each second block is left out")
}

impl Story {
    /// Allocates a block of 64 bytes that was sampled as one of eight.
    fn sample_at(self, level: u8, address: u64, stack: StackId) -> Self {
        self.sample_of(level, address, Sample::of_weighted(Bytes(64), Bytes(512), 0), stack)
    }

    fn sample_of(self, level: u8, address: u64, sample: Sample, stack: StackId) -> Self {
        let kind = EventKind::SampledAlloc {
            address: AbsAddr(address),
            size: Bytes(64),
            sample: Box::new(sample),
            thinning: level,
            stack,
            allocator: AllocatorId::UNKNOWN,
            tag: TagId::UNTAGGED,
        };
        self.event(PID, T1, 5, kind)
    }

    fn end_sample(self, address: u64) -> Self {
        self.event(PID, T1, 6, EventKind::SampledFree { address: AbsAddr(address) })
    }

    fn thin(mut self, level: u8) -> Self {
        self.0.thin(IMAGE, level, SALT);
        self
    }
}

#[test]
fn blocks_that_stay_stand_for_twice_as_much() {
    let (stays, left_out) = (block(0, true), block(0, false));
    let story = Story::new().sample_at(0, stays, S).sample_at(0, left_out, R).thin(1);
    assert_eq!(numbers(&story.total(), true), TWICE);
    assert_eq!(story.total().free(), Amount::default());
    assert_eq!(story.image(0).by_stack.keys().collect::<Vec<_>>(), [&StackKey::from(S)]);
    assert_eq!(story.0.live(), Amount { bytes: Bytes(1024), count: 16 });
    // The block that is left out may still be in the table of the process.
    let story = story.end_sample(left_out).end_sample(stays);
    assert_eq!(numbers(&story.total(), false), NOTHING);
    assert_eq!((story.total().alloc(), story.total().free()), (TWICE.amount(), TWICE.amount()));
    assert_eq!((story.image(0).unmatched_samples, story.0.losses().total()), (0, 0));
    assert_eq!(story.0.live(), Amount::default());
}

#[test]
fn blocks_that_were_freed_before_keep_their_numbers() {
    let (stays, left_out) = (block(0, true), block(0, false));
    let story = Story::new().sample_at(0, stays, S).sample_at(0, left_out, S).end_sample(stays).end_sample(left_out);
    let before = story.total();
    assert_eq!(story.thin(1).total(), before);
}

#[test]
fn samples_at_a_level_count_from_there() {
    let [first, second, third] = [0, 1, 2].map(|nth| block(nth, true));
    let left_out = block(0, false);
    let story = Story::new().sample_at(0, first, S).thin(1);
    // The record of a sample at the earlier level arrives late.
    let story = story.sample_at(0, second, S).sample_at(0, left_out, S);
    assert_eq!(numbers(&story.total(), true).live, (2048, 32));
    // A sample at this level is complete, wherever the block is.
    let story = story.sample_at(1, third, S).sample_at(1, left_out, S);
    assert_eq!(numbers(&story.total(), true).live, (2048 + 1024, 32 + 16));
    assert_eq!(story.0.losses().total(), 0);
}

#[test]
fn a_sample_at_a_higher_level_thins_the_earlier_ones() {
    let (stays, left_out) = (block(0, true), block(0, false));
    let story = Story::new().thin(0).sample_at(0, stays, S).sample_at(0, left_out, S).sample_at(1, block(1, true), R);
    assert_eq!(numbers(&story.image(0).by_stack[&S.into()], true), TWICE);
    // Both are freed before the command to thin. The process reports the free of the block that stays.
    let story = story.end_sample(stays).thin(1);
    let of_stack = story.image(0).by_stack[&S.into()];
    assert_eq!((of_stack.alloc(), of_stack.free()), (TWICE.amount(), TWICE.amount()));
    assert_eq!((numbers(&story.total(), false), story.0.losses().total()), (ONE, 0));
    // If the salt of the process is not known, only the command thins the samples.
    let story = Story::new().sample_at(0, left_out, S).sample_at(1, stays, R);
    assert_eq!(story.total().live().count, 16);
}

#[test]
fn levels_in_steps_give_the_same_samples() {
    let all = || {
        let blocks = (0..200).map(|nth| A + (nth << 4));
        blocks.fold(Story::new(), |story, address| story.sample_at(0, address, StackId(address % 7 + 100)))
    };
    let (at_once, in_steps) = (all().thin(3), all().thin(1).thin(2).thin(3));
    assert_eq!(at_once.image(0), in_steps.image(0));
    // The level does not fall.
    assert_eq!(at_once.image(0), in_steps.thin(2).thin(3).image(0));
}

#[test]
fn no_level_is_above_the_highest() {
    let stays = (1..).map(|nth| A + (nth << 4)).find(|&address| !is_thinned(address, SALT, 0, 15));
    let story = || Story::new().sample_at(0, stays.expect("one in 32,768 blocks stays"), S);
    assert_eq!(story().thin(15).total().live(), Amount { bytes: Bytes(512 << 15), count: 8 << 15 });
    assert_eq!(story().thin(255).total(), story().thin(15).total());
}

#[test]
fn a_failed_realloc_restores_the_thinned_sample() {
    let (stays, left_out) = (block(0, true), block(0, false));
    let settings = Settings { lifetimes: true, ..WIDE };
    let freed = |address| Story::with(settings).alloc(B, 10, R).sample_at(0, address, S).free_tentatively(T1, address);
    let story = freed(stays).thin(1).undo_free(T1, stays);
    assert_eq!(numbers(&story.image(0).by_stack[&S.into()], true), TWICE);
    assert_eq!(story.total().free(), Amount::default());
    let story = freed(left_out).thin(1).undo_free(T1, left_out);
    assert_eq!((story.image(0).by_stack.get(&S.into()), story.total().alloc()), (None, Amount::one(Bytes(10))));
    let sizes = |story: &Story| story.image(0).histograms.keys().copied().collect::<Vec<_>>();
    assert_eq!(sizes(&story), [StackKey::from(R)], "the block has no size and no lifetime");
}

#[test]
fn frees_of_blocks_that_are_left_out_are_not_unmatched() {
    let story = Story::new().alloc(B, 10, R).end_sample(A).free_tentatively(T1, A).undo_free(T1, A);
    assert_eq!((story.image(0).unmatched_samples, story.image(0).unmatched_frees), (1, 0));
    let story = story.thin(1).end_sample(A).free_tentatively(T1, A);
    assert_eq!((story.image(0).unmatched_samples, story.image(0).unmatched_frees), (1, 0));
    let story = story.undo_free(T1, A);
    assert_eq!((story.image(0).unmatched_frees, story.total().live()), (0, Amount::one(Bytes(10))));
}

#[test]
fn a_reused_address_of_a_block_that_is_left_out_is_no_loss() {
    // The process has reached the level 1, and reports no free of the first block. The command to thin comes later.
    let story = Story::new().sample_at(0, A, S).sample_at(1, A, R);
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    assert_eq!(numbers(&story.total(), true), ONE);
    assert_eq!(story.image(0).by_stack.keys().collect::<Vec<_>>(), [&StackKey::from(R)]);
    // The second sample has the same level, so the free of the first block was lost.
    let story = story.thin(1).sample_at(1, A, S);
    assert_eq!(story.lost(LossReason::FreeUnseen), 1);
    assert_eq!((numbers(&story.total(), false), story.total().alloc().count), (ONE, 16));
}

#[test]
fn blocks_that_are_left_out_make_room() {
    let settings = Settings { blocks: 8, ..WIDE };
    let story = Story::with(settings).sample_at(0, block(0, true), S).sample_at(0, block(0, false), S);
    let story = story.sample_at(0, block(1, true), S);
    assert_eq!(story.lost(LossReason::LedgerFull), 1);
    let story = story.thin(1).sample_at(1, block(1, true), S);
    assert_eq!((story.lost(LossReason::LedgerFull), story.total().live().count), (1, 24));
}

#[test]
fn stacks_without_samples_make_room() {
    // A stack of sampled blocks takes the room of two.
    let story = Story::with(Settings { stacks: 4, ..WIDE });
    let story = story.sample_at(0, block(0, false), S).sample_at(0, block(0, true), R).thin(1);
    let story = story.alloc(B, 10, StackId(1 << 40)).alloc(B + 16, 10, StackId(2 << 40));
    assert_eq!((story.lost(LossReason::StacksFull), story.image(0).merged_stacks), (0, 1));
    assert_eq!(numbers(&story.image(0).by_stack[&R.into()], true), TWICE);
}

#[test]
fn the_peak_is_that_of_the_corrected_sum() {
    let settings = Settings { track_peak: true, ..WIDE };
    let story = Story::with(settings).sample_at(0, block(0, true), S).sample_at(0, block(0, false), R);
    // Between the two corrections, the sum could be 1,536 bytes.
    let image = story.thin(1).image(0);
    assert_eq!(image.peak, Some(Bytes(1024)));
    let at_peak = |stack: StackId| image.by_stack[&stack.into()][Quantity::AtPeakBytes];
    assert_eq!([S, R].map(at_peak), [512, 512]);
    let story = Story::with(settings).sample_at(0, block(0, true), S).sample_at(0, block(1, true), S).thin(1);
    assert_eq!(story.image(0).peak, Some(Bytes(2048)));
}

#[test]
fn accounts_have_the_corrected_sum() {
    let parts = Some(PartKeys::NONE);
    let settings = Settings { parts: PartKeys::THREAD, accounts: parts, ..WIDE };
    let mut story = Story::with(settings).sample_at(0, block(0, true), S).sample_at(0, block(0, false), R);
    let _ = story.0.take_accounts();
    let mut story = story.thin(1);
    let changes = story.0.take_accounts().expect("there are accounts");
    let [account] = changes.images[0].accounts[..] else { panic!("one account has changed") };
    assert_eq!((account.counters.alloc, account.counters.free), (TWICE.amount(), Amount::default()));
    assert_eq!(account.marks, WaterMarks { low: TWICE.amount(), high: TWICE.amount() });
    assert_eq!((changes.live, changes.marks), (TWICE.amount(), account.marks));
}

#[test]
fn deltas_have_the_corrections() {
    let mut story = Story(Ledger::new(WIDE).with_deltas());
    story = story.sample_at(0, block(0, true), S).sample_at(0, block(0, false), R);
    let mut sum: Delta = story.0.take_delta(Tick(10));
    let mut story = story.thin(1);
    sum.merge(story.0.take_delta(Tick(20)));
    let usage = &sum.usage[&EventClass::Heap][&IMAGE];
    assert_eq!(usage.by_stack.keys().collect::<Vec<_>>(), [&StackKey::from(S)]);
    assert_eq!((numbers(&usage.by_stack[&S.into()], true), usage.total), (TWICE, story.total()));
}

#[test]
fn samples_of_a_demoted_process_are_followed() {
    let demoted = |min_size| Demoted { image: IMAGE, min_size: Bytes(min_size), at: Tick(7) };
    let mut story = Story::new().sample_at(0, block(0, true), S);
    story.0.demote(demoted(4096));
    let story = story.sample_at(0, block(1, true), S);
    assert_eq!((numbers(&story.total(), false), story.image(0).demotion.dropped.count), (NOTHING, 16));
    // The process is patched now, and its exact blocks are dropped.
    let mut story = story.thin(0).sample_at(0, block(2, true), S).alloc(B, 10, R);
    assert_eq!((numbers(&story.total(), false), story.image(0).demotion.dropped.count), (ONE, 17));
    // Nothing counts twice.
    story.0.set_dropped(demoted(u64::MAX), Amount { bytes: Bytes(1000), count: 50 });
    assert_eq!((numbers(&story.total(), false), story.image(0).demotion.dropped.count), (ONE, 17));
    // A later demotion makes room in the ledger.
    story.0.demote(demoted(8192));
    let story = story.sample_at(0, block(3, true), S);
    assert_eq!((numbers(&story.total(), false), story.image(0).demotion.dropped.count), (NOTHING, 33));
}

/// A process with a large exact block that was demoted and then patched, and has taken a sample at `address`.
fn demoted_and_patched(address: u64) -> Story {
    let mut story = Story::new().alloc(B, 8192, R);
    story.0.demote(Demoted { image: IMAGE, min_size: Bytes(4096), at: Tick(7) });
    story.thin(0).sample_at(0, address, S)
}

#[test]
fn a_realloc_with_two_reports_restores_the_sample() {
    let (address, exact) = (block(0, true), Amount::one(Bytes(8192)));
    let before = demoted_and_patched(address).image(0);
    let called = || demoted_and_patched(address).free_tentatively(T1, address).free_tentatively(T1, address);
    assert_eq!((called().total().live(), called().image(0).demotion.frees), (exact, 0));
    // Both report the failure, too.
    assert_eq!(called().undo_free(T1, address).image(0), before);
    assert_eq!(called().undo_free(T1, address).undo_free(T1, address).image(0), before);
    // The next call frees another block with this address. This block was dropped.
    let next = || called().free_tentatively(T1, address);
    assert_eq!((next().total().live(), next().image(0).demotion.frees), (exact, 1));
    let failed = next().undo_free(T1, address);
    assert_eq!((failed.total().live(), failed.image(0).demotion.frees), (exact, 0));
}

#[test]
fn a_resize_in_place_keeps_the_sample() {
    let address = block(0, true);
    let before = demoted_and_patched(address).image(0);
    // Only the probes of each call report the resize.
    let resized = || demoted_and_patched(address).free_tentatively(T1, address).undo_free(T1, address);
    assert_eq!(resized().image(0), before);
    let freed = resized().end_sample(address);
    assert_eq!((freed.total().live(), freed.image(0).demotion.frees), (Amount::one(Bytes(8192)), 0));
}

#[test]
fn a_free_with_two_reports_counts_once() {
    let address = block(0, true);
    let story = demoted_and_patched(address).free(address).end_sample(address);
    assert_eq!((story.total().live(), story.image(0).demotion.frees), (Amount::one(Bytes(8192)), 0));
    assert_eq!(story.free(address).image(0).demotion.frees, 1, "a dropped block");
}

#[test]
fn another_image_is_not_thinned() {
    let mut story = Story::new().sample_at(0, block(0, true), S).exec().sample_at(0, block(0, false), S);
    for ordinal in [0, 2] {
        story.0.thin(ImageId { pid: PID, ordinal }, 1, SALT);
    }
    assert_eq!(numbers(&story.image(1).total, true), ONE);
    story.0.thin(ImageId { pid: PID, ordinal: 1 }, 1, SALT);
    assert!(!story.0.snapshot(EventClass::Heap, NOW).images.contains_key(&ImageId { pid: PID, ordinal: 1 }));
}

#[test]
fn an_image_without_events_keeps_its_level() {
    let story = Story::new().thin(1).sample_at(0, block(0, true), S).sample_at(0, block(0, false), R);
    assert_eq!(numbers(&story.total(), true), TWICE);
}

#[test]
fn thinned_sums_are_unbiased_and_have_the_stated_variance() {
    const SALTS: u64 = 20_000;
    // Each block of 64 bytes stands for itself at its level, so only the thinning to the level 3 has a variance.
    const LEVELS: [u8; 6] = [0, 0, 1, 1, 2, 3];
    let exact = Sample::of_weighted(Bytes(64), Bytes(64), 0);
    let (mut sum, mut squares, mut stated) = (0.0, 0.0, 0.0);
    for salt in 0..SALTS {
        let blocks = (1..).zip(LEVELS);
        let mut story =
            blocks.fold(Story::new(), |story, (nth, level)| story.sample_of(level, A + (nth << 10), exact, S));
        story.0.thin(IMAGE, 3, rounding_key(AbsAddr(salt), Tick(1)));
        let total = story.total();
        sum += total.live().bytes.0 as f64;
        squares += (total.live().bytes.0 as f64).powi(2);
        stated += total.variance(Variance::HeldBytes) as f64;
    }
    let [mean, square, stated] = [sum, squares, stated].map(|sum| sum / SALTS as f64);
    // A block that stays with the probability 1/2, 1/4 or 1/8 adds 64² times 1, 3 or 7 to the variance.
    let variance = 64.0 * 64.0 * (7.0 + 7.0 + 3.0 + 3.0 + 1.0);
    // The standard error of the mean is 2.07.
    assert!((mean - 384.0).abs() < 8.0, "{mean}");
    // The standard deviations of these ratios are about 0.015.
    let ratios = [stated, square - mean * mean].map(|other| other / variance);
    assert!(ratios.iter().all(|ratio| (0.93..1.07).contains(ratio)), "{ratios:?}");
}
