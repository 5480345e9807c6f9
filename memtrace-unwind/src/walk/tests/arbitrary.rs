//! Walks over arbitrary tables and stacks terminate without a panic, with consistent results.

use proptest::prelude::*;

use super::*;
use crate::cache::CachedRule;
use crate::{ReadMemory, RuleCache, Window, WindowedMemory};

/// A frame takes two steps if its return address was replaced. After the last frame, one more step finds that there is
/// no room left.
const MAX_STEPS: usize = 2 * MAX_FRAMES + 1;

/// Memory and tables: a hash of the address selects the word and the rule. Few words and rules make chains and loops
/// likely.
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

impl ReadMemory for &Arbitrary {
    fn read(&mut self, address: u64, into: &mut [u64]) -> bool {
        let mut is_complete = true;
        for (index, word) in (0..).zip(into) {
            let read = pick(&self.words, address.wrapping_add(index * 8));
            is_complete &= read.is_some();
            *word = read.unwrap_or(0);
        }
        is_complete
    }
}

/// Cache with some of the rules.
struct Cache<'a> {
    world: &'a Arbitrary,
    cached: &'a [bool],
}

impl RuleCache for Cache<'_> {
    fn cached(&self, pc: u64) -> Option<CachedRule> {
        let found = (&*self.world).lookup(pc);
        (pick(self.cached, pc) && found.kind == Kind::Rule).then(|| CachedRule::new(&found.rule, 0))
    }
}

fn words() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => any::<u64>(),
        2 => (0u64..1 << 12).prop_map(|index| SP + index * 8),
        1 => prop::sample::select(vec![0, u64::MAX, INDIRECT_CALL, SP + MAX_FRAME_BYTES]),
    ]
}

fn offsets() -> impl Strategy<Value = i32> {
    prop_oneof![any::<i32>(), (-8i32..64).prop_map(|words| words * 8)]
}

fn lookups() -> impl Strategy<Value = Lookup> {
    let extra = prop_oneof![offsets(), 0i32..16];
    let rules = (0u8..12, 0u8..5, 0u8..5, offsets(), offsets(), extra).prop_map(
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

/// Rules as compilers emit them for most functions, and a few arbitrary ones.
fn common_lookups() -> impl Strategy<Value = Lookup> {
    let common = (cfa::SP..=cfa::FP, 1i32..16, 0i32..4).prop_map(|(cfa_kind, words, below)| {
        let fp_kind = if below == 0 { fp::SAME } else { fp::AT_CFA };
        Lookup::rule(Rule { cfa_kind, fp_kind, cfa_offset: words * 8, fp_offset: below * -8, ..Rule::default() })
    });
    prop_oneof![6 => common, 1 => Just(Lookup::GENERATED), 1 => lookups()]
}

/// Returns code with common rules, and a stack with few unreadable words.
fn common() -> impl Strategy<Value = Arbitrary> {
    (
        prop::collection::vec(prop::option::weighted(0.998, words()), 10..40),
        prop::collection::vec(common_lookups(), 4..12),
        prop::collection::vec(Just(None), 1),
    )
        .prop_map(|(words, found, originals)| Arbitrary { words, found, originals })
}

/// Code that has a table for the first lookups only.
struct WithoutTable<'a> {
    code: &'a Arbitrary,
    /// Number of further lookups with a table.
    before: usize,
    /// Number of lookups without a table.
    missed: usize,
}

impl Table for WithoutTable<'_> {
    fn lookup(&mut self, pc: u64) -> Lookup {
        match self.before.checked_sub(1) {
            Some(before) => {
                self.before = before;
                (&*self.code).lookup(pc)
            }
            None => {
                self.missed += 1;
                Lookup::end(End::TablePending)
            }
        }
    }

    fn original_return(&mut self, _slot: u64) -> Option<u64> {
        None
    }
}

/// Takes steps to the end of the walk. Returns its frames, end and hash.
fn finish(
    walk: &mut Walk,
    frames: &mut [u64; MAX_FRAMES],
    world: &Arbitrary,
    table: &mut impl Table,
) -> (Vec<u64>, End, u64) {
    let end = (0..MAX_STEPS).find_map(|_| walk.step(frames, &mut &*world, table).break_value());
    let end = end.expect("the walk terminates");
    (frames[..walk.count() as usize].to_vec(), end, walk.hash(end as u32))
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
        let end = (0..MAX_STEPS).find_map(|_| walk.step(&mut frames, &mut &world, &mut &world).break_value());
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

    #[test]
    fn simple_steps_change_no_walk(
        world in prop_oneof![arbitrary(), common()],
        ip in words(),
        numbered in prop::array::uniform16(words()),
        ip_is_return: bool,
        depth in 0u32..300,
        cached in prop::collection::vec(prop::bool::weighted(0.8), 1..8),
    ) {
        let registers = Registers { ip, ip_is_return, numbered };
        let mut walk = Walk::default();
        let mut frames = [0; MAX_FRAMES];
        walk.begin(&registers, depth, 7);
        let whole = finish(&mut walk, &mut frames, &world, &mut &world);
        let end_of_whole = walk;

        let mut window = Window::default();
        walk.begin(&registers, depth, 7);
        let end = (0..MAX_STEPS).find_map(|_| {
            let mut memory = WindowedMemory::new(&mut window, &world);
            walk.simple_steps(&mut frames, &mut memory, &Cache { world: &world, cached: &cached });
            walk.step(&mut frames, &mut memory, &mut &world).break_value()
        });
        let end = end.expect("the walk terminates");
        prop_assert_eq!((frames[..walk.count() as usize].to_vec(), end, walk.hash(end as u32)), whole);
        prop_assert_eq!(walk, end_of_whole);
    }

    #[test]
    fn resumed_walk_finds_the_frames_of_an_uninterrupted_one(
        world in arbitrary(),
        ip in words(),
        numbered in prop::array::uniform16(words()),
        ip_is_return: bool,
        depth in 1u32..300,
        before in 0usize..20,
    ) {
        let world = Arbitrary { originals: vec![None], ..world };
        let registers = Registers { ip, ip_is_return, numbered };
        let mut walk = Walk::default();
        let mut frames = [0; MAX_FRAMES];
        walk.begin(&registers, depth, 7);
        let whole = finish(&mut walk, &mut frames, &world, &mut &world);

        walk.begin(&registers, depth, 7);
        let mut code = WithoutTable { code: &world, before, missed: 0 };
        let (cut, end, _) = finish(&mut walk, &mut frames, &world, &mut code);
        // The first lookup without a table can be for the target of a call. Then the walk accepts the call and goes on,
        // and misses more lookups.
        if end == End::TablePending && code.missed == 1 {
            let mut resumed = Walk::resume(walk.position(), 7, &cut, core::array::from_fn(|number| walk.leaf(number)));
            prop_assert_eq!(finish(&mut resumed, &mut frames, &world, &mut &world), whole);
        }
    }
}
