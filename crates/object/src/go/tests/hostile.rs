//! Forged and torn memory, and damaged files: each gives a profile or an error, without a panic and with few reads.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::fake_process::{FakeProcess, HEAP, Numbers};
use super::fake_program::{BUCKETS, CYCLE, FakeProgram, IN_GOEXIT, IN_MALLOC, INLINED, MAIN, RATE};
use crate::elf::Elf;
use crate::go::{GoExecutable, GoFunctions, HeapProfile, ProfileChanges, ProfileError};

const NUMBERS: Numbers = [[10, 4], [3, 1], [2, 0], [5, 5]];
/// Number of words of the buckets in [`process`].
const WORDS: u64 = 5 * 24;
/// Maximum number of reads. A profile without faults takes about 40.
const MAX_READS: usize = 400;

/// Returns a process with five buckets.
fn process(minor: u32) -> FakeProcess {
    let version = if minor == 26 { "go1.26.6" } else { "go1.27.3" };
    let mut process = FakeProcess::new(FakeProgram::new(version, minor));
    let [call, outer, main] = INLINED;
    for size in [16, 48, 1024] {
        process.add(&[IN_MALLOC, call, outer, main, IN_GOEXIT], size, NUMBERS);
    }
    process.add(&[MAIN + 4], 64, NUMBERS);
    process.add(&[], 64, NUMBERS);
    process
}

/// Returns addresses of words that lead to the profile or belong to it.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![8 => (0..WORDS).prop_map(|word| HEAP + 8 * word), 1 => prop_oneof![Just(BUCKETS), Just(CYCLE), Just(RATE)]]
}

/// Returns words that a hostile process could write: pointers to buckets and next to them, limits, and any number.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..WORDS + 600).prop_map(|word| HEAP + 8 * word),
        (0..4096_u64).prop_map(|byte| HEAP + byte),
        (0..64_u32).prop_map(|bit| 1_u64 << bit),
        (0..64_u32).prop_map(|bit| u64::MAX >> bit),
        0..2000_u64,
        any::<u64>(),
    ]
}

/// Checks the invariants of each profile.
fn check(result: Result<&HeapProfile, &ProfileError>, process: &FakeProcess) -> Result<(), TestCaseError> {
    prop_assert!(process.reads.get() < MAX_READS, "{} reads", process.reads.get());
    if let Ok(profile) = result {
        prop_assert!(profile.buckets.iter().all(|bucket| bucket.frees <= bucket.allocs && bucket.size.0 > 0));
        prop_assert!(profile.buckets.len() <= 100 && profile.new_stacks.len() <= profile.buckets.len());
        prop_assert!((1..=1 << 40).contains(&profile.rate.0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn forged_memory_gives_a_profile_or_an_error(
        minor in 26..=27_u32,
        words in vec((address(), word()), 1..12),
        length in prop_oneof![3 => Just(usize::MAX), 1 => 0..1000_usize],
    ) {
        let process = process(minor);
        for (address, word) in words {
            process.memory.borrow_mut().set_if_mapped(address, word);
        }
        process.cut(length);
        let mut reader = process.reader();
        let result = process.read(&mut reader, 0);
        check(result.as_ref(), &process)?;
        process.reads.set(0);
        let known = result.as_ref().map_or(0, |profile| profile.buckets.len());
        check(process.read(&mut reader, known).as_ref(), &process)?;
    }

    #[test]
    fn torn_memory_gives_a_profile_or_an_error(minor in 26..=27_u32, words in vec((address(), word()), 1..60)) {
        let process = process(minor);
        let mut words = VecDeque::from(words);
        *process.change.borrow_mut() = Box::new(move |memory| {
            if let Some((address, word)) = words.pop_front() {
                memory.set_if_mapped(address, word);
            }
        });
        let (mut reader, mut changes, mut known) = (process.reader(), ProfileChanges::default(), 0);
        for _ in 0..6 {
            process.reads.set(0);
            let result = process.read(&mut reader, known);
            check(result.as_ref(), &process)?;
            if let Ok(profile) = result {
                known = profile.buckets.len();
                let difference = changes.apply(&profile);
                prop_assert!(difference.changes.len() + usize::try_from(difference.decreased).unwrap() <= known);
            }
        }
    }

    #[test]
    fn damaged_programs_give_names_or_none(
        minor in prop_oneof![Just(19_u32), Just(26), Just(27)],
        bytes in vec((0..0x1180_usize, any::<u8>()), 1..8),
        has_sections in any::<bool>(),
        length in prop_oneof![3 => Just(usize::MAX), 1 => 0..0x1180_usize],
    ) {
        let version = match minor {
            19 => "go1.19.8",
            26 => "go1.26.6",
            _ => "go1.27.3",
        };
        let mut file = FakeProgram { has_sections, ..FakeProgram::new(version, minor) }.bytes();
        for (at, byte) in bytes {
            if let Some(place) = file.get_mut(at) {
                *place = byte;
            }
        }
        file.truncate(length);
        let _ = GoExecutable::read(&file[..]);
        if let Ok(elf) = Elf::parse(&file[..])
            && let Some(functions) = GoFunctions::find(&elf)
        {
            let found = functions.at(&elf, &[MAIN, MAIN + 0x24, IN_MALLOC, 0, u64::MAX]);
            prop_assert_eq!(found.len(), 5);
            prop_assert!(found.iter().flatten().all(|functions| !functions.is_empty()));
        }
    }
}
