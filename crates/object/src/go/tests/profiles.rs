//! Readings of heap profiles in memory that was built by hand.

use memtrace_model::{AbsAddr, Bytes, SampleSum};

use super::fake_process::{FakeProcess, HEAP};
use super::fake_program::{BUCKETS, CYCLE, FakeProgram, IN_GOEXIT, IN_MALLOC, IN_MAPS, INLINED, MAIN, RATE};
use crate::go::{
    Bucket, BucketFault, BucketStack, GoExecutable, HeapProfile, ProfileChanges, ProfileError, ProfileReader,
};

const OLD: FakeProgram = FakeProgram::new("go1.26.6", 26);
const NEW: FakeProgram = FakeProgram::new("go1.27.3", 27);

/// Numbers that are published, and nothing else.
const fn published(allocs: u64, frees: u64) -> [[u64; 2]; 4] {
    [[allocs, frees], [0; 2], [0; 2], [0; 2]]
}

fn bucket(size: u64, allocs: u64, frees: u64) -> Bucket {
    Bucket { size: Bytes(size), allocs, frees }
}

fn fault(result: Result<HeapProfile, ProfileError>) -> BucketFault {
    match result {
        Err(ProfileError::Bucket { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn buckets_are_read_in_each_layout() {
    for program in [OLD, NEW, FakeProgram::new("go1.19.8", 19)] {
        let mut process = FakeProcess::new(program);
        process.add(&[MAIN + 4, IN_GOEXIT], 64, published(10, 4));
        process.add(&[MAIN + 8, IN_GOEXIT], 1 << 20, published(3, 3));
        let mut reader = process.reader();
        let profile = process.read(&mut reader, 0).unwrap();
        assert_eq!(profile.buckets, [bucket(64, 10, 4), bucket(1 << 20, 3, 3)]);
        assert_eq!((profile.collections, profile.is_published, profile.is_mixed, profile.changed), (3, true, false, 0));
        assert_eq!(profile.rate, Bytes(512 << 10));
        let stack = |bucket, frame| BucketStack { bucket, frames: [AbsAddr(frame)].into(), is_truncated: false };
        assert_eq!(profile.new_stacks, [stack(0, MAIN + 4), stack(1, MAIN + 8)]);

        // Known buckets keep their place, and their stacks are not returned again.
        process.add(&[MAIN + 12, IN_GOEXIT], 32, published(1, 0));
        let profile = process.read(&mut reader, 2).unwrap();
        assert_eq!(profile.buckets, [bucket(64, 10, 4), bucket(1 << 20, 3, 3), bucket(32, 1, 0)]);
        assert_eq!(profile.new_stacks, [stack(2, MAIN + 12)]);
        // The caller has not received the last reading.
        assert_eq!(process.read(&mut reader, 2).unwrap(), profile);
        assert_eq!(process.read(&mut reader, 0).unwrap().new_stacks.len(), 3);
    }
}

#[test]
fn stacks_have_the_frames_of_the_programs_own_profile() {
    let frames = |stack: &[u64]| {
        let mut process = FakeProcess::new(NEW);
        process.add(stack, 64, published(1, 0));
        let mut profile = process.read(&mut process.reader(), 0).unwrap();
        let BucketStack { frames, is_truncated, .. } = profile.new_stacks.pop().unwrap();
        (frames.iter().map(|frame| frame.0).collect::<Vec<_>>(), is_truncated)
    };
    // Functions of the runtime at the leaf are hidden, and so are the addresses of inlined calls and of goexit.
    let [call, outer, main] = INLINED;
    assert_eq!(frames(&[IN_MALLOC, IN_MAPS, call, outer, main, IN_GOEXIT]), (vec![call], false));
    // The same call without the outer functions, as at the end of a cut stack. They are added to the call.
    assert_eq!(frames(&[call]), (vec![call], false));
    // The runtime has left out a wrapper.
    assert_eq!(frames(&[call, main, IN_GOEXIT]), (vec![call], false));
    // A stack that begins within an inlined call.
    assert_eq!(frames(&[outer, main, call, outer, main]), (vec![outer, call], false));
    // The runtime is shown where the program calls it, and if there is nothing else.
    assert_eq!(frames(&[MAIN + 4, IN_MALLOC, IN_GOEXIT]), (vec![MAIN + 4, IN_MALLOC], false));
    assert_eq!(frames(&[IN_MALLOC, IN_GOEXIT]), (vec![IN_MALLOC], false));
    // C code is outside of the table.
    assert_eq!(frames(&[0x7000, IN_GOEXIT]), (vec![0x7000], false));
    let deep = [MAIN + 4; 33];
    assert_eq!(frames(&deep), (deep.to_vec(), true));
    assert_eq!(frames(&[]), (vec![], false));
}

#[test]
fn addresses_are_moved_by_the_bias() {
    const BIAS: u64 = 0x5500_0000_0000;
    let program = GoExecutable::read(&NEW.bytes()[..]).unwrap();
    let mut process = FakeProcess::new(NEW);
    process.add(&INLINED.map(|address| address + BIAS), 64, published(2, 1));
    // The variables are at their addresses in the object.
    let mut reader = ProfileReader::new(program.into(), BIAS);
    assert!(matches!(process.read(&mut reader, 0), Err(ProfileError::Memory(_))));
    process.move_variables(BIAS);
    let profile = process.read(&mut reader, 0).unwrap();
    assert_eq!(profile.buckets, [bucket(64, 2, 1)]);
    assert_eq!(profile.new_stacks[0].frames[..], [AbsAddr(INLINED[0] + BIAS)]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn variables_of_stripped_programs_are_found_by_their_code() {
    for program in [OLD, NEW, FakeProgram::new("go1.19.8", 19)] {
        let whole = GoExecutable::read(&program.bytes()[..]).unwrap();
        for has_sections in [true, false] {
            let stripped = FakeProgram { has_symbols: false, has_sections, ..program };
            assert_eq!(GoExecutable::read(&stripped.bytes()[..]).unwrap().variables, whole.variables);
        }
        // In Go 1.19, the rate has no initial value. It is the second variable that the function loads.
        let mut bytes = FakeProgram { has_symbols: false, ..program }.bytes();
        let at = usize::try_from(RATE - 0x40_0000).unwrap();
        bytes[at..at + 8].fill(0);
        assert_eq!(GoExecutable::read(&bytes[..]).unwrap().variables, whole.variables);
    }
}

#[test]
fn programs_without_a_profile_are_named() {
    let process = FakeProcess::new(FakeProgram { imports_pprof: false, ..NEW });
    let mut reader = process.reader();
    assert!(!GoExecutable::read(&process.program.bytes()[..]).unwrap().keeps_profile());
    let error = process.read(&mut reader, 0).unwrap_err();
    assert!(matches!(error, ProfileError::NotImported) && error.is_off());
    assert_eq!(error.to_string(), "the program does not import runtime/pprof, so that it keeps no heap profile");
    let process = FakeProcess::new(NEW);
    for (rate, is_off) in [(0, true), (u64::MAX, false), ((1 << 40) + 1, false)] {
        process.memory.borrow_mut().set(RATE, rate);
        let error = process.read(&mut process.reader(), 0).unwrap_err();
        assert_eq!((matches!(error, ProfileError::RateIsZero), error.is_off()), (is_off, is_off));
    }
}

#[test]
fn cycle_that_is_being_published_counts_as_published() {
    let mut process = FakeProcess::new(NEW);
    // Cycle 4 uses the place of cycle 1.
    process.set_cycle(4, false);
    process.add(&[MAIN + 4], 64, [[10, 4], [100, 0], [2, 1], [50, 0]]);
    let mut reader = process.reader();
    let before = process.read(&mut reader, 0).unwrap();
    assert_eq!((&before.buckets[..], before.collections), (&[bucket(64, 12, 5)][..], 4));
    process.set_cycle(4, true);
    process.set_numbers(HEAP, 1, 64, [[12, 5], [100, 0], [0, 0], [50, 0]]);
    assert_eq!(process.read(&mut reader, 1).unwrap().buckets, before.buckets);
}

#[test]
fn samples_before_the_first_publication_are_shown() {
    let mut process = FakeProcess::new(NEW);
    process.set_cycle(0, false);
    process.add(&[MAIN + 4], 64, [[0, 0], [0, 0], [0, 0], [7, 0]]);
    let mut reader = process.reader();
    let mut changes = ProfileChanges::default();
    let sum = |samples| SampleSum::of_poisson(samples, Bytes(64), Bytes(512 << 10), 0);
    let profile = process.read(&mut reader, 0).unwrap();
    assert_eq!((&profile.buckets[..], profile.is_published), (&[bucket(64, 7, 0)][..], false));
    let difference = changes.apply(&profile);
    assert_eq!((difference.changes[0].alloc, difference.changes[0].free), (sum(7), sum(0)));

    // After the first collection, two samples of another bucket are published, and none of this one.
    process.set_cycle(1, true);
    process.add(&[MAIN + 8], 64, published(2, 0));
    let profile = process.read(&mut reader, 1).unwrap();
    assert_eq!((&profile.buckets[..], profile.is_published), (&[bucket(64, 0, 0), bucket(64, 2, 0)][..], true));
    let difference = changes.apply(&profile);
    assert_eq!((difference.changes.len(), difference.changes[0].bucket, difference.decreased), (1, 1, 0));
    // After the second collection, the seven samples are published, and do not count again. A smaller number would be forged.
    process.set_cycle(2, true);
    process.set_numbers(HEAP, 1, 64, [[7, 1], [0, 0], [0, 0], [0, 0]]);
    let difference = changes.apply(&process.read(&mut reader, 2).unwrap());
    let [change] = difference.changes[..] else { panic!("{difference:?}") };
    assert_eq!((change.bucket, change.alloc, change.free), (0, SampleSum::default(), sum(1)));
    process.set_numbers(HEAP, 1, 64, [[6, 1], [0, 0], [0, 0], [0, 0]]);
    let difference = changes.apply(&process.read(&mut reader, 2).unwrap());
    assert_eq!((difference.changes.len(), difference.decreased), (0, 1));
}

#[test]
fn buckets_that_change_during_each_try_are_counted() {
    let mut process = FakeProcess::new(NEW);
    process.add(&[MAIN + 4], 64, published(10, 4));
    let changing = process.add(&[MAIN + 8], 64, published(10, 4));
    let record = changing + 8 * 7;
    *process.change.borrow_mut() = Box::new(move |memory| {
        let allocs = memory.word(record);
        memory.set(record, allocs + 1);
    });
    let profile = process.read(&mut process.reader(), 0).unwrap();
    assert_eq!((profile.changed, profile.is_mixed, profile.buckets[0]), (1, false, bucket(64, 10, 4)));
    assert!(profile.buckets[1].allocs > 10);
}

#[test]
fn profiles_of_several_collections_are_marked() {
    let mut process = FakeProcess::new(NEW);
    process.add(&[MAIN + 4], 64, [[10, 4], [1, 0], [1, 0], [1, 0]]);
    *process.change.borrow_mut() = Box::new(|memory| {
        let cycle = memory.word(CYCLE);
        memory.set(CYCLE, cycle + 2);
    });
    let profile = process.read(&mut process.reader(), 0).unwrap();
    // The place of a published cycle already has the numbers of a later cycle, so only the published profile is read.
    assert_eq!((profile.is_mixed, profile.changed, &profile.buckets[..]), (true, 0, &[bucket(64, 10, 4)][..]));
}

#[test]
fn ten_thousand_buckets_take_few_reads() {
    let mut process = FakeProcess::new(OLD);
    let stack: Vec<u64> = (0..20).map(|frame| MAIN + 4 + frame).collect();
    for size in 1..=10_000 {
        process.add(&stack, size, published(2, 1));
    }
    let mut reader = process.reader();
    assert_eq!(process.read(&mut reader, 0).unwrap().buckets.len(), 10_000);
    // The buckets have 42 words each, and fill 52 blocks of 64 KiB. The first reading reads the blocks three times, a
    // later one twice.
    let reads = process.reads.replace(0);
    assert!(reads < 220, "{reads}");
    process.read(&mut reader, 10_000).unwrap();
    let reads = process.reads.get();
    assert!(reads < 150, "{reads}");
}

#[test]
fn forged_buckets_are_named() {
    let read = |address: u64, word: u64| {
        let mut process = FakeProcess::new(OLD);
        process.add(&[MAIN + 4, MAIN + 8], 64, published(10, 4));
        process.memory.borrow_mut().set(address, word);
        process.read(&mut process.reader(), 0)
    };
    let words = [
        (BUCKETS, HEAP + 4, BucketFault::Address),
        (BUCKETS, 8, BucketFault::Address),
        (BUCKETS, 1 << 63, BucketFault::Address),
        (HEAP + 16, 2, BucketFault::Type),
        (HEAP + 24, 1, BucketFault::Hash),
        (HEAP + 32, 0, BucketFault::Size),
        (HEAP + 32, u64::MAX, BucketFault::Size),
        (HEAP + 32, 65, BucketFault::Hash),
        (HEAP + 40, 1025, BucketFault::Depth),
        (HEAP + 40, u64::MAX, BucketFault::Depth),
        (HEAP + 48, 0, BucketFault::Frame),
        (HEAP + 48, 1 << 60, BucketFault::Frame),
        (HEAP + 48, MAIN + 5, BucketFault::Hash),
        (HEAP + 64, u64::MAX, BucketFault::Numbers),
        (HEAP + 72, 11, BucketFault::Numbers),
        (HEAP + 80, 641, BucketFault::Numbers),
    ];
    for (address, word, expected) in words {
        assert_eq!(fault(read(address, word)), expected, "{address:x} {word:x}");
    }
    assert!(matches!(read(BUCKETS, 0x1000), Err(ProfileError::Memory(_))));
    assert!(matches!(read(HEAP + 8, HEAP), Err(ProfileError::Cycle)));
    // The bucket begins with the last word of the memory.
    assert!(matches!(read(BUCKETS, HEAP + 4096 - 8), Err(ProfileError::Memory(_))));
}

#[test]
fn lists_that_lose_buckets_are_refused() {
    let mut process = FakeProcess::new(NEW);
    let first = process.add(&[MAIN + 4], 64, published(1, 0));
    let second = process.add(&[MAIN + 8], 64, published(1, 0));
    let mut reader = process.reader();
    process.read(&mut reader, 0).unwrap();
    process.memory.borrow_mut().set(BUCKETS, first);
    assert!(matches!(process.read(&mut reader, 2), Err(ProfileError::LostBuckets)));
    process.memory.borrow_mut().set(BUCKETS, 0);
    assert!(matches!(process.read(&mut reader, 2), Err(ProfileError::LostBuckets)));
    // The reader is as before.
    process.memory.borrow_mut().set(BUCKETS, second);
    assert_eq!(process.read(&mut reader, 2).unwrap().buckets.len(), 2);
}

#[test]
fn changes_add_up_to_the_estimate_of_all_samples() {
    let mut process = FakeProcess::new(NEW);
    let address = process.add(&[MAIN + 4], 1000, published(0, 0));
    process.add(&[MAIN + 8], 1 << 20, published(1, 0));
    let (mut reader, mut changes) = (process.reader(), ProfileChanges::default());
    let (mut alloc, mut free) = (SampleSum::default(), SampleSum::default());
    for (allocs, frees) in [(0, 0), (3, 0), (3, 2), (100, 50), (101, 101)] {
        process.set_numbers(address, 1, 1000, published(allocs, frees));
        let known = if allocs == 0 { 0 } else { 2 };
        let profile = process.read(&mut reader, known).unwrap();
        let difference = changes.apply(&profile);
        assert_eq!(difference.decreased, 0);
        for change in difference.changes.iter().filter(|change| change.bucket == 0) {
            alloc += change.alloc;
            free += change.free;
        }
        let sum = |samples| SampleSum::of_poisson(samples, Bytes(1000), Bytes(512 << 10), 0);
        assert_eq!((alloc, free), (sum(allocs), sum(frees)));
        assert!(free.amount.bytes <= alloc.amount.bytes && free.amount.count <= alloc.amount.count);
    }
    // 101 samples of 1000 bytes: 1/p = 1/(1 - e^(-1000/524288)) = 524.788, so 53,003.6 blocks of 1000 bytes.
    assert!((53_003..=53_004).contains(&alloc.amount.count), "{alloc:?}");
    assert!((53_003_500..=53_003_700).contains(&alloc.amount.bytes.0), "{alloc:?}");
}
