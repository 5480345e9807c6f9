//! Effects of the machine code, executed in the test process.

use std::collections::HashSet;
use std::thread;

use memtrace_common::thinning::{MAX_THINNING, is_thinned, thinning_hash};

use super::super::layout::{
    CHECKS, COUNTDOWN, DRAWN, FILTER, FILTER_SIZE, FIRST_DRAWS, FREES, IN_COLD, LARGE, LEVEL, MAX_DISTANCE,
    NOT_INSERTED, PROBED_SLOTS, SAMPLES, SLOTS, TABLE, THREAD_EPOCH, THREAD_INTERVAL,
};
use super::victim::{
    ALLOC_HITS, ALLOC_OUT, CALLOC, FORWARDING_REALLOC, FREE, FREE_HITS, JUMP, LAST_FREE, LAST_TENTATIVE, LAST_UNDO,
    LEAF, MALLOC, MARK_VALUE, REALLOC, Returned, SALT_VALUE, TENTATIVE_HITS, UNDO_HITS, Victim, answer, calls,
    fourth_argument, set_thread_word, thread_word,
};

const BLOCK: u64 = 0x7f12_3456_7890;
const OTHER: u64 = 0x7f65_4321_0ab0;
/// Mean interval of the countdowns that tests set.
const INTERVAL: u64 = 4096;
/// State of the random number generator.
const RANDOM: u64 = 0x1357_9bdf_0246_8ace;
/// Offset from the thread pointer of a copy of the thread pointer.
const THREAD_POINTER: u32 = 0x10;

/// Returns the numbers of reported allocations, frees, reallocations and failed reallocations.
fn hits(victim: &Victim) -> [u64; 4] {
    [ALLOC_HITS, FREE_HITS, TENTATIVE_HITS, UNDO_HITS].map(|offset| victim.word(offset))
}

/// Returns the bytes that the thread has counted, if it began with a countdown of 0.
fn counted(victim: &Victim) -> u64 {
    victim.data(DRAWN).wrapping_sub(thread_word(COUNTDOWN))
}

/// Returns the count of the filter for a block.
fn count(victim: &Victim, block: u64) -> u8 {
    victim.byte(FILTER + (block >> 4) % FILTER_SIZE)
}

/// Returns the words of the table that are in use.
fn table(victim: &Victim) -> Vec<u64> {
    let words = (0..SLOTS).map(|slot| victim.data(TABLE + 8 * slot));
    words.filter(|word| *word > 1).collect()
}

/// Returns a victim with a countdown that ends with the next byte.
fn ending() -> Victim {
    let victim = Victim::new(1024);
    victim.begin(0, INTERVAL, RANDOM);
    victim
}

/// Returns a victim that has sampled a block, with a countdown of 1000.
fn sampled() -> Victim {
    let victim = ending();
    answer(BLOCK, None);
    assert_eq!(victim.call(MALLOC, [100, 0, 0]).block, BLOCK);
    assert_eq!(hits(&victim), [1, 0, 0, 0]);
    set_thread_word(COUNTDOWN, 1000);
    calls();
    victim
}

/// Returns what the probe of an allocation sees.
fn report(value: u64, size: u64) -> Returned {
    Returned { value, block: value, size, interval: INTERVAL }
}

#[test]
fn block_is_sampled_when_the_countdown_ends() {
    let victim = Victim::new(1024);
    victim.begin(100, INTERVAL, RANDOM);
    answer(BLOCK, None);
    assert_eq!(victim.call(MALLOC, [100, 0, 0]).value, BLOCK);
    assert_eq!((calls(), hits(&victim)), (vec![[100, MARK_VALUE]], [0; 4]));
    assert_eq!((thread_word(COUNTDOWN), victim.data(DRAWN)), (0, 0));

    assert_eq!(victim.call(MALLOC, [3, 0, 0]), report(BLOCK, 3));
    assert_eq!((calls(), hits(&victim)), (vec![[3, MARK_VALUE]], [1, 0, 0, 0]));
    // 103 bytes are counted, 100 of them before the first draw.
    assert_eq!(counted(&victim), 3);
    assert_eq!(thread_word(THREAD_INTERVAL), 1024);
    assert_eq!((table(&victim), count(&victim, BLOCK)), (vec![BLOCK], 1));
    let data = [SAMPLES, FREES, FIRST_DRAWS, IN_COLD, LARGE, CHECKS].map(|offset| victim.data(offset));
    assert_eq!(data, [1, 0, 0, 0, 0, 0]);
}

#[test]
fn failed_allocation_is_counted_and_not_sampled() {
    let victim = ending();
    answer(0, None);
    assert_eq!(victim.call(MALLOC, [5, 0, 0]).value, 0);
    assert_eq!((calls(), hits(&victim)), (vec![[5, MARK_VALUE]], [0; 4]));
    assert_eq!((counted(&victim), victim.data(IN_COLD), table(&victim)), (5, 0, vec![]));
}

#[test]
fn size_zero_does_not_end_a_countdown() {
    let victim = ending();
    answer(BLOCK, None);
    assert_eq!(victim.call(MALLOC, [0; 3]).value, BLOCK);
    assert_eq!((hits(&victim), victim.data(DRAWN)), ([0; 4], 0));
}

#[test]
fn threads_begin_with_different_draws() {
    // A block of 64 bytes is sampled once in 67 million cases.
    let victim = Victim::new(1 << 32);
    answer(BLOCK, None);
    assert_eq!(victim.call(MALLOC, [64, 0, 0]).value, BLOCK);
    assert_eq!((calls(), hits(&victim)), (vec![[64, MARK_VALUE]], [0; 4]));
    assert_eq!((counted(&victim), victim.data(FIRST_DRAWS), victim.data(IN_COLD)), (64, 1, 0));
    assert_eq!(thread_word(THREAD_INTERVAL), 1 << 32);
    let own = thread_word(COUNTDOWN);
    let call = || {
        // The stack of an ended thread, with its header, may serve the next one.
        set_thread_word(THREAD_EPOCH, 0);
        set_thread_word(COUNTDOWN, 0);
        answer(OTHER, None);
        assert_eq!(victim.call(MALLOC, [80, 0, 0]).value, OTHER);
        thread_word(COUNTDOWN)
    };
    let others: Vec<u64> = (0..4).map(|_| thread::scope(|scope| scope.spawn(call).join().unwrap())).collect();
    assert_eq!(victim.data(FIRST_DRAWS), 5);
    let different: HashSet<u64> = others.iter().copied().chain([own]).collect();
    assert_eq!(different.len(), 5);
    let left = others.iter().fold(own, |sum, countdown| sum.wrapping_add(*countdown));
    assert_eq!(victim.data(DRAWN).wrapping_sub(left), 64 + 4 * 80);
}

#[test]
fn first_block_of_a_thread_can_be_sampled() {
    // With a mean of 1 byte, a countdown of more than 22 bytes is impossible.
    let victim = Victim::new(1);
    answer(BLOCK, None);
    assert_eq!(victim.call(MALLOC, [64, 0, 0]), Returned { interval: 1, ..report(BLOCK, 64) });
    assert_eq!((calls(), hits(&victim)), (vec![[64, MARK_VALUE]], [1, 0, 0, 0]));
    assert_eq!((counted(&victim), victim.data(FIRST_DRAWS)), (64, 1));
}

#[test]
fn huge_sizes_do_not_silence_a_thread() {
    let victim = Victim::new(1024);
    victim.begin(1000, INTERVAL, RANDOM);
    answer(0, None);
    for size in [1 << 47, 1 << 63, (1 << 63) + 1, u64::MAX] {
        assert_eq!(victim.call(MALLOC, [size, 0, 0]).value, 0);
        assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[size, MARK_VALUE]], 1000), "{size:#x}");
    }
    assert_eq!((victim.data(LARGE), victim.data(DRAWN), victim.data(IN_COLD)), (4, 0, 0));
    // The first size of a thread is too large to be counted.
    set_thread_word(THREAD_EPOCH, 0);
    set_thread_word(COUNTDOWN, 0);
    victim.call(MALLOC, [1 << 63, 0, 0]);
    assert_eq!((thread_word(COUNTDOWN), victim.data(FIRST_DRAWS)), (0, 0));
    victim.begin(0, INTERVAL, RANDOM);
    victim.call(MALLOC, [(1 << 47) - 1, 0, 0]);
    assert_eq!((counted(&victim), victim.data(LARGE)), ((1 << 47) - 1, 5));
}

#[test]
fn counted_bytes_equal_the_sizes() {
    let victim = Victim::new(100_000);
    victim.begin(0, INTERVAL, RANDOM);
    answer(BLOCK, None);
    let mut state = 0x2545_f491_u64;
    let mut sum = 0_u64;
    for call in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = state >> (64 - state % 65).min(63);
        let (function, arguments) = if call % 3 == 0 { (REALLOC, [0, size, 0]) } else { (MALLOC, [size, 0, 0]) };
        victim.call(function, arguments);
        sum = sum.wrapping_add(if size < 1 << 47 { size } else { 0 });
        assert_eq!(counted(&victim), sum, "call {call}: {size:#x}");
        assert!(thread_word(COUNTDOWN) < 1 << 40);
    }
    assert!(victim.word(ALLOC_HITS) > 1000 && victim.data(LARGE) > 1000);
    assert_eq!(victim.data(IN_COLD), 0);
}

#[test]
fn product_of_count_and_size_is_counted() {
    let victim = Victim::new(1024);
    victim.begin(1000, INTERVAL, RANDOM);
    answer(BLOCK, None);
    assert_eq!(victim.call(CALLOC, [10, 50, 0]).value, BLOCK);
    assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[10, 50]], 500));
    assert_eq!(victim.call(CALLOC, [7, 100, 0]), report(BLOCK, 700));
    assert_eq!((calls(), hits(&victim)), (vec![[7, 100]], [1, 0, 0, 0]));
}

#[test]
fn overflowing_product_is_not_counted() {
    let victim = Victim::new(1024);
    victim.begin(1000, INTERVAL, RANDOM);
    answer(0, None);
    for [count, size] in [[1 << 33, 1 << 33], [1 << 62, 2], [u64::MAX, 8], [3, u64::MAX - 7]] {
        assert_eq!(victim.call(CALLOC, [count, size, 0]).value, 0);
        assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[count, size]], 1000));
    }
    // -8 and -24 are huge sizes. 1 is the product of two negative numbers, and is counted.
    assert_eq!(victim.data(LARGE), 2);
    assert_eq!(victim.call(CALLOC, [u64::MAX, u64::MAX, 0]).value, 0);
    assert_eq!((thread_word(COUNTDOWN), hits(&victim)), (999, [0; 4]));
}

#[test]
fn block_of_an_out_parameter_is_sampled() {
    let victim = ending();
    let mut place = 0_u64;
    let pointer = (&raw mut place).expose_provenance() as u64;
    // The upper half of a result of type int has no meaning.
    for (result, interval) in [(0, INTERVAL), (0xffff_ffff_0000_0000, 1024)] {
        set_thread_word(COUNTDOWN, 0);
        answer(result, Some(BLOCK));
        let returned = victim.call(ALLOC_OUT, [pointer, 64, 640]);
        assert_eq!(returned, Returned { value: result, interval, ..report(BLOCK, 640) });
        assert_eq!((calls(), fourth_argument()), (vec![[pointer, 64]], thread_word(THREAD_POINTER)));
    }
    assert_eq!(hits(&victim), [2, 0, 0, 0]);
    // SAFETY: The variable lives, and the callback has written to it.
    assert_eq!(unsafe { (&raw const place).read_volatile() }, BLOCK);
    for (result, block) in [(12, BLOCK), (0, 0)] {
        set_thread_word(COUNTDOWN, 0);
        answer(result, Some(block));
        assert_eq!(victim.call(ALLOC_OUT, [pointer, 64, 640]).value, result);
        assert_eq!(hits(&victim), [2, 0, 0, 0]);
    }
    assert_eq!((calls().len(), victim.data(IN_COLD)), (2, 0));
}

#[test]
fn red_zone_and_flags_survive_the_cold_path() {
    let value = |size: u64| (1 << 32) + 16 * size;
    // The thread begins to count: the cold path goes back to the site.
    for (size, expected) in [(100, value(100)), (0x1000, value(0x1000)), (0x1001, 0)] {
        let victim = Victim::new(1 << 32);
        assert_eq!(victim.call(LEAF, [size, 0, 0]).value, expected, "{size:#x}");
        assert_eq!((victim.data(FIRST_DRAWS), hits(&victim)), (1, [0; 4]));
        assert_eq!(victim.call(LEAF, [1 << 47, 0, 0]).value, 0);
        assert_eq!(victim.data(LARGE), 1);
    }
    let victim = ending();
    assert_eq!(victim.call(LEAF, [100, 0, 0]), report(value(100), 100));
    set_thread_word(COUNTDOWN, 0);
    assert_eq!(victim.call(LEAF, [0x1001, 0, 0]).value, 0);
    assert_eq!(hits(&victim), [1, 0, 0, 0]);
}

#[test]
fn displaced_jump_leaves_the_function() {
    let victim = Victim::new(1024);
    victim.begin(8, INTERVAL, RANDOM);
    assert_eq!(victim.call(JUMP, [7, 0, 0]).value, (1 << 32) + 112);
    assert_eq!(thread_word(COUNTDOWN), 1);
    assert_eq!(victim.call(JUMP, [9, 0, 0]), report((1 << 32) + 144, 9));
    assert_eq!(hits(&victim), [1, 0, 0, 0]);
}

#[test]
fn free_of_a_sampled_block_is_reported_once() {
    let victim = sampled();
    answer(0, None);
    // Another block has the same count in the filter.
    let alike = BLOCK + (1 << 18);
    victim.call(FREE, [alike, 0, 0]);
    assert_eq!((hits(&victim), victim.data(CHECKS)), ([1, 0, 0, 0], 1));
    victim.call(FREE, [BLOCK, 0, 0]);
    assert_eq!((hits(&victim), victim.word(LAST_FREE), victim.data(CHECKS)), ([1, 1, 0, 0], BLOCK, 2));
    assert_eq!((table(&victim), count(&victim, BLOCK), victim.data(FREES)), (vec![], 0, 1));
    victim.call(FREE, [BLOCK, 0, 0]);
    victim.call(FREE, [0, 0, 0]);
    assert_eq!((hits(&victim), victim.data(CHECKS), victim.data(IN_COLD)), ([1, 1, 0, 0], 2, 0));
    let arguments = [alike, BLOCK, BLOCK, 0].map(|block| [block, MARK_VALUE]);
    assert_eq!(calls(), arguments);
}

#[test]
fn reallocation_of_a_sampled_block_is_reported() {
    let victim = sampled();
    answer(OTHER, None);
    assert_eq!(victim.call(REALLOC, [BLOCK, 50, 0]).value, OTHER);
    assert_eq!((calls(), hits(&victim)), (vec![[BLOCK, 50]], [1, 0, 1, 0]));
    assert_eq!(victim.word(LAST_TENTATIVE), BLOCK);
    assert_eq!((thread_word(COUNTDOWN), table(&victim), victim.data(IN_COLD)), (950, vec![], 0));
    // The block is not sampled any more.
    victim.call(REALLOC, [BLOCK, 50, 0]);
    assert_eq!((calls().len(), hits(&victim), thread_word(COUNTDOWN)), (1, [1, 0, 1, 0], 900));
}

#[test]
fn reallocation_can_replace_one_sampled_block_by_another() {
    let victim = sampled();
    answer(OTHER, None);
    set_thread_word(COUNTDOWN, 10);
    let drawn = victim.data(DRAWN);
    let returned = victim.call(REALLOC, [BLOCK, 50, 0]);
    assert_eq!(returned, Returned { interval: 1024, ..report(OTHER, 50) });
    assert_eq!((calls(), hits(&victim)), (vec![[BLOCK, 50]], [2, 0, 1, 0]));
    assert_eq!(victim.data(DRAWN).wrapping_sub(drawn), thread_word(COUNTDOWN).wrapping_add(40));
    assert_eq!((table(&victim), victim.data(SAMPLES), victim.data(FREES)), (vec![OTHER], 2, 1));
}

#[test]
fn failed_reallocation_restores_the_block() {
    // The countdown ends, and it does not.
    for countdown in [10, 1000] {
        let victim = sampled();
        answer(0, None);
        set_thread_word(COUNTDOWN, countdown);
        let before = counted(&victim);
        assert_eq!(victim.call(REALLOC, [BLOCK, 50, 0]).value, 0);
        assert_eq!((calls(), hits(&victim)), (vec![[BLOCK, 50]], [1, 0, 1, 1]));
        assert_eq!((victim.word(LAST_UNDO), counted(&victim).wrapping_sub(before)), (BLOCK, 50));
        assert_eq!((table(&victim), count(&victim, BLOCK), victim.data(IN_COLD)), (vec![BLOCK], 1, 0));
        victim.call(FREE, [BLOCK, 0, 0]);
        assert_eq!(hits(&victim), [1, 1, 1, 1]);
    }
}

#[test]
fn huge_reallocation_restores_the_block() {
    let victim = sampled();
    answer(0, None);
    assert_eq!(victim.call(REALLOC, [BLOCK, 1 << 63, 0]).value, 0);
    // The call in the cold path meets the huge size too.
    assert_eq!((calls(), hits(&victim)), (vec![[BLOCK, 1 << 63]], [1, 0, 1, 1]));
    assert_eq!((thread_word(COUNTDOWN), victim.data(LARGE), victim.data(IN_COLD)), (1000, 2, 0));
    assert_eq!(table(&victim), [BLOCK]);
}

#[test]
fn reallocation_to_size_zero_is_a_free() {
    let victim = sampled();
    answer(0, None);
    assert_eq!(victim.call(REALLOC, [BLOCK, 0, 0]).value, 0);
    assert_eq!((calls(), hits(&victim)), (vec![[BLOCK, 0]], [1, 0, 1, 0]));
    assert_eq!((thread_word(COUNTDOWN), table(&victim)), (1000, vec![]));
}

#[test]
fn reallocation_of_null_is_an_allocation() {
    let victim = Victim::new(1024);
    victim.begin(60, INTERVAL, RANDOM);
    answer(BLOCK, None);
    victim.call(REALLOC, [0, 50, 0]);
    assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[0, 50]], 10));
    assert_eq!(victim.call(REALLOC, [0, 50, 0]), report(BLOCK, 50));
    assert_eq!((calls(), hits(&victim)), (vec![[0, 50]], [1, 0, 0, 0]));
    // A function that jumps to another function for this call does not count it: the site of the other function counts it.
    set_thread_word(COUNTDOWN, 10);
    victim.call(FORWARDING_REALLOC, [0, 50, 0]);
    assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[0, 50]], 10));
    victim.call(FORWARDING_REALLOC, [OTHER, 3, 0]);
    assert_eq!((calls(), thread_word(COUNTDOWN)), (vec![[OTHER, 3]], 7));
}

#[test]
fn thread_that_begins_with_a_reallocation_frees_the_block() {
    let victim = sampled();
    thread::scope(|scope| {
        scope.spawn(|| {
            set_thread_word(THREAD_EPOCH, 0);
            set_thread_word(COUNTDOWN, 0);
            answer(OTHER, None);
            let before = victim.data(DRAWN);
            victim.call(REALLOC, [BLOCK, 1, 0]);
            assert_eq!((calls(), hits(&victim)[2]), (vec![[BLOCK, 1]], 1));
            let drawn = victim.data(DRAWN).wrapping_sub(before);
            assert_eq!((drawn.wrapping_sub(thread_word(COUNTDOWN)), victim.data(FIRST_DRAWS)), (1, 1));
        });
    });
    assert_eq!((victim.data(FREES), victim.data(IN_COLD)), (1, 0));
}

#[test]
fn draws_have_an_exponential_distribution() {
    const DRAWS: u32 = 1_000_000;
    let mean = 1_048_576.0;
    let victim = Victim::new(1 << 20);
    victim.begin(0, INTERVAL, RANDOM);
    let draw = |_: u32| {
        assert_eq!(victim.draw(0).0, 1);
        thread_word(COUNTDOWN)
    };
    let mut draws: Vec<f64> = (0..DRAWS).map(draw).map(|bytes| bytes as f64 / mean).collect();
    let average = draws.iter().sum::<f64>() / f64::from(DRAWS);
    assert!((average - 1.0).abs() < 0.003, "{average}");
    draws.sort_by(f64::total_cmp);
    let distance = (0_u32..).zip(&draws).map(|(rank, value)| {
        let expected = -(-value).exp_m1();
        let [below, above] = [rank, rank + 1].map(|rank| (f64::from(rank) / f64::from(DRAWS) - expected).abs());
        below.max(above)
    });
    // Kolmogorov and Smirnov: a larger distance has a probability of 1 in 1,000.
    let limit = 1.95 / f64::from(DRAWS).sqrt();
    assert!(distance.fold(0.0, f64::max) < limit);
}

#[test]
fn weights_of_samples_add_up_to_the_bytes() {
    let victim = Victim::new(INTERVAL);
    victim.begin(0, INTERVAL, RANDOM);
    victim.draw(0);
    answer(BLOCK, None);
    let mut state = 1_u64;
    let (mut bytes, mut estimate, mut variance) = (0.0, 0.0, 0.0);
    let mut reported = 0;
    for _ in 0..200_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = 1 + (state >> 33) % 3000;
        let returned = victim.call(MALLOC, [size, 0, 0]);
        bytes += size as f64;
        if victim.word(ALLOC_HITS) > reported {
            reported += 1;
            assert_eq!(returned, report(BLOCK, size));
            let size = size as f64;
            let p = -(-size / INTERVAL as f64).exp_m1();
            estimate += size / p;
            variance += size * size * (1.0 - p) / (p * p);
        }
    }
    assert!(reported > 50_000, "{reported}");
    let error: f64 = estimate - bytes;
    assert!(error.abs() < 3.0 * f64::sqrt(variance), "{error} {variance}");
}

#[test]
fn threads_find_each_address_that_they_have_inserted() {
    const THREADS: u64 = 8;
    let victim = Victim::new(1024);
    let work = |thread: u64| {
        let mut live: Vec<u64> = Vec::new();
        let mut state = thread + 1;
        for number in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = 0x7f00_0000_0000 + 16 * (number * THREADS + thread);
            assert_eq!(victim.insert(address), Some(0));
            live.push(address);
            if live.len() > 1000 || state >> 63 == 1 {
                let address = live.swap_remove((state >> 32) as usize % live.len());
                assert!(victim.take(address), "{address:#x}");
                assert!(!victim.take(address), "{address:#x}");
            }
        }
        for address in live {
            assert!(victim.take(address), "{address:#x}");
        }
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(thread));
        }
    });
    assert_eq!((table(&victim), victim.byte(LEVEL)), (vec![], 0));
    assert!((0..FILTER_SIZE).all(|index| victim.byte(FILTER + index) == 0));
    let data = [SAMPLES, FREES, NOT_INSERTED].map(|offset| victim.data(offset));
    assert_eq!(data, [8 * 20_000, 8 * 20_000, 0]);
}

/// Returns addresses with the same first slot.
fn colliding(number: usize) -> Vec<u64> {
    let slot = |address: u64| address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    let addresses = (0x7f00_0000_0000_u64..).step_by(16);
    addresses.filter(|address| slot(*address) == 0xfff0).take(number).collect()
}

#[test]
fn full_table_leaves_out_half_of_the_addresses() {
    let victim = Victim::new(1024);
    let addresses = colliding(PROBED_SLOTS as usize + 1);
    let (last, first) = addresses.split_last().unwrap();
    assert!(first.iter().all(|address| victim.insert(*address) == Some(0)));
    assert_eq!((victim.byte(LEVEL), victim.byte(MAX_DISTANCE)), (0, 63));
    assert_eq!(victim.insert(*last), Some(1));
    assert_eq!(victim.byte(LEVEL), 1);
    // The first slot whose address the level leaves out.
    let replaced = *first.iter().find(|address| is_thinned(**address, SALT_VALUE, 0, 1)).unwrap();
    assert_eq!((thinning_hash(replaced, SALT_VALUE) >> 48) & 1, 1);
    assert!(table(&victim).contains(&(last | 1 << 56)));
    assert!(!victim.take(replaced));
    let others = first.iter().filter(|address| **address != replaced);
    assert!(others.chain([last]).all(|address| victim.take(*address)));
    assert_eq!((victim.data(SAMPLES), victim.data(FREES), table(&victim)), (65, 64, vec![]));
    assert!((0..FILTER_SIZE).all(|index| victim.byte(FILTER + index) == 0));
}

#[test]
fn addresses_are_left_out_by_the_levels_since() {
    let addresses = colliding(PROBED_SLOTS as usize + 1);
    let (last, first) = addresses.split_last().unwrap();
    for (from, to) in [(0, 1), (0, 3), (2, 3), (1, 5), (3, 7)] {
        let victim = Victim::new(1024);
        victim.set_byte(LEVEL, from);
        assert!(first.iter().all(|address| victim.insert(*address) == Some(u64::from(from))));
        victim.set_byte(LEVEL, to);
        assert_eq!(victim.insert(*last), Some(u64::from(to)));
        let left_out = |address: &&u64| is_thinned(**address, SALT_VALUE, from, to);
        let replaced = first.iter().find(left_out).unwrap();
        let found: Vec<&u64> = first.iter().filter(|address| victim.take(**address)).collect();
        let expected: Vec<&u64> = first.iter().filter(|address| *address != replaced).collect();
        assert_eq!(found, expected, "{from} {to}");
    }
}

#[test]
fn sample_is_lost_at_the_last_level() {
    let victim = Victim::new(1024);
    let addresses = colliding(PROBED_SLOTS as usize + 1);
    let (last, first) = addresses.split_last().unwrap();
    victim.set_byte(LEVEL, MAX_THINNING);
    assert!(first.iter().all(|address| victim.insert(*address) == Some(15)));
    assert_eq!(victim.insert(*last), None);
    let data = [NOT_INSERTED, SAMPLES].map(|offset| victim.data(offset));
    assert_eq!((data, victim.byte(LEVEL)), ([1, 64], 15));
    // The block is handed out without a report.
    victim.begin(0, INTERVAL, RANDOM);
    answer(*last, None);
    assert_eq!(victim.call(MALLOC, [100, 0, 0]).value, *last);
    assert_eq!((hits(&victim), victim.data(NOT_INSERTED), victim.data(IN_COLD)), ([0; 4], 2, 0));
    assert!(first.iter().all(|address| victim.take(*address)));
}

#[test]
fn levels_rise_while_more_addresses_come() {
    let victim = Victim::new(1024);
    let addresses = (0..120_000_u64).map(|number| 0x7f00_0000_0000 + 48 * number);
    let mut highest = 0;
    for address in addresses.clone() {
        let level = victim.insert(address).unwrap();
        assert!(level >= highest);
        highest = level;
    }
    assert_eq!((highest, table(&victim).len()), (3, 65_536));
    // Exactly the addresses in the table are found. Each missing address is one that a level up to the highest leaves out.
    let words = table(&victim);
    let kept: HashSet<u64> = words.iter().map(|word| word & ((1 << 56) - 1)).collect();
    assert_eq!(kept.len(), words.len());
    let highest = u8::try_from(highest).unwrap();
    for address in addresses {
        assert_eq!(victim.take(address), kept.contains(&address));
        assert!(kept.contains(&address) || is_thinned(address, SALT_VALUE, 0, highest));
    }
    assert!((0..FILTER_SIZE).all(|index| victim.byte(FILTER + index) == 0));
}

#[test]
fn address_that_is_handed_out_again_stays_in_the_table_once() {
    let victim = sampled();
    answer(BLOCK, None);
    set_thread_word(COUNTDOWN, 0);
    assert_eq!(victim.call(MALLOC, [8, 0, 0]).block, BLOCK);
    assert_eq!((table(&victim), count(&victim, BLOCK), victim.data(SAMPLES)), (vec![BLOCK], 1, 2));
}

#[test]
fn full_and_empty_counts_of_the_filter_stay() {
    let victim = Victim::new(1024);
    let alike: Vec<u64> = (0..300).map(|number| BLOCK + (number << 18)).collect();
    assert!(alike.iter().all(|address| victim.insert(*address) == Some(0)));
    assert_eq!(count(&victim, BLOCK), 255);
    assert!(alike.iter().all(|address| victim.take(*address)));
    assert_eq!(count(&victim, BLOCK), 255);
    victim.set_byte(FILTER + (BLOCK >> 4) % FILTER_SIZE, 254);
    assert_eq!(victim.insert(BLOCK), Some(0));
    assert_eq!(count(&victim, BLOCK), 255);
    // A new session has emptied the filter, but not yet the table.
    victim.set_byte(FILTER + (BLOCK >> 4) % FILTER_SIZE, 0);
    assert!(victim.take(BLOCK));
    assert_eq!(count(&victim, BLOCK), 0);
}
