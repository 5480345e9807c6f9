//! Walks over arbitrary tables and stacks terminate without a panic, with consistent results.

use proptest::prelude::*;

use super::*;

/// Words and rules chosen by a hash of the address. There are few, so that chains and loops occur.
#[derive(Debug)]
struct Arbitrary {
    words: Vec<Option<u64>>,
    found: Vec<Lookup>,
    originals: Vec<Option<u64>>,
}

fn pick<T: Copy>(from: &[T], by: u64) -> T {
    from[(by.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % from.len()]
}

impl Memory for &Arbitrary {
    fn word(&mut self, address: u64) -> Option<u64> {
        pick(&self.words, address)
    }
}

impl Table for &Arbitrary {
    fn lookup(&mut self, pc: u64) -> Lookup {
        pick(&self.found, pc)
    }

    fn original_return(&mut self, slot: u64) -> Option<u64> {
        pick(&self.originals, slot)
    }
}

fn words() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), (0u64..1 << 12).prop_map(|index| SP + index * 8), Just(0), Just(u64::MAX)]
}

fn offsets() -> impl Strategy<Value = i32> {
    prop_oneof![any::<i32>(), (-8i32..64).prop_map(|words| words * 8)]
}

fn lookups() -> impl Strategy<Value = Lookup> {
    let rules = (0u8..12, 0u8..5, 0u8..5, offsets(), offsets(), offsets()).prop_map(
        |(cfa_kind, fp_kind, ra_kind, cfa_offset, fp_offset, extra)| {
            Lookup::rule(Rule { cfa_kind, fp_kind, ra_kind, reserved: 0, cfa_offset, fp_offset, extra })
        },
    );
    prop_oneof![
        8 => rules,
        1 => Just(Lookup::GENERATED),
        1 => prop::sample::select(vec![End::NoMapping, End::NoRow, End::NoTable]).prop_map(Lookup::end),
    ]
}

fn arbitrary() -> impl Strategy<Value = Arbitrary> {
    let some = |chance| prop::option::weighted(chance, words());
    (
        prop::collection::vec(some(0.95), 1..40),
        prop::collection::vec(lookups(), 1..12),
        prop::collection::vec(some(0.3), 1..4),
    )
        .prop_map(|(words, found, originals)| Arbitrary { words, found, originals })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn walk_over_arbitrary_input_terminates(
        world in arbitrary(),
        ip in words(),
        numbered in prop::array::uniform16(words()),
        ip_is_return: bool,
        depth in prop_oneof![0u32..300, any::<u32>()],
    ) {
        let mut walk = Walk::default();
        let mut frames = [0; MAX_FRAMES];
        walk.begin(&Registers { ip, ip_is_return, numbered }, depth, 7);
        // A replaced return address takes an extra step.
        let end = (0..2 * MAX_FRAMES).find_map(|_| walk.step(&mut frames, &mut &world, &mut &world).break_value());
        let count = walk.count();
        prop_assert!(count <= depth && count as usize <= MAX_FRAMES);
        match end {
            Some(End::Truncated) => prop_assert_eq!(count as usize, MAX_FRAMES.min(depth as usize)),
            Some(_) => prop_assert!(count > 0),
            None => prop_assert!(false, "the walk does not terminate"),
        }
        let hash = frames[..count as usize].iter().fold(mix(0, 7), |hash, &frame| mix(hash, frame));
        prop_assert_eq!(walk.hash(End::Complete as u32), mix(hash, End::Complete as u64));
    }
}
