use memtrace_common::unwind::{MAX_RULES, Rule, cfa};
use proptest::prelude::*;

use super::*;

/// Returns a rule that is stored as its index.
fn numbered(number: u32) -> CachedRule {
    CachedRule::new(&Rule { cfa_kind: cfa::REGISTER, ..Rule::default() }, number)
}

#[test]
fn empty_entry_never_hits() {
    for generation in [1, 2, u32::MAX] {
        assert_eq!(decode([0, 0], 0, generation), None);
        assert_eq!(decode([0, 0], 0x40_1000, generation), None);
    }
}

#[test]
fn addresses_that_are_too_large_are_not_stored() {
    assert_eq!(encode(1 << ADDRESS_BITS, 1, numbered(1)), None);
    let entry = encode(0x1000, 1, numbered(7)).unwrap();
    assert_eq!(decode(entry, 0x1000 | 1 << ADDRESS_BITS, 1), None);
}

#[test]
fn torn_entry_of_consecutive_generations_misses() {
    for (generation, other_generation) in (1u32..40).flat_map(|g| (1u32..40).map(move |other| (g, other))) {
        if generation == other_generation {
            continue;
        }
        for number in 0..128 {
            // At this address, the lower bits of the two halves match.
            let asked = 0x40_1000;
            let page = (asked >> ENTRY_BITS) ^ u64::from(generation ^ other_generation);
            let first = encode(with_equal_index(asked, page << ENTRY_BITS), generation, numbered(0)).unwrap();
            let second = encode(with_equal_index(asked, 0x123_4000), other_generation, numbered(number)).unwrap();
            assert_eq!(decode([first[0], second[1]], asked, other_generation), None);
        }
    }
}

fn rules() -> impl Strategy<Value = CachedRule> {
    prop_oneof![
        (0u32..MAX_RULES as u32).prop_map(numbered),
        (0i32..65_536).prop_map(|words| {
            CachedRule::new(&Rule { cfa_kind: cfa::SP, cfa_offset: words * 8, ..Rule::default() }, 0)
        }),
    ]
}

fn entries() -> impl Strategy<Value = (u64, u32, CachedRule)> {
    (0u64..1 << ADDRESS_BITS, 1u32.., rules())
}

/// Returns an address on the page of `other` with the same index as `pc`.
fn with_equal_index(pc: u64, other: u64) -> u64 {
    let page = other >> ENTRY_BITS;
    page << ENTRY_BITS | (u64::from(index(pc)) ^ page) & (ENTRIES as u64 - 1)
}

proptest! {
    #[test]
    fn entry_hits_only_for_its_address_and_generation(
        (pc, generation, rule) in entries(),
        (other_pc, other_generation, _) in entries(),
    ) {
        let entry = encode(pc, generation, rule).unwrap();
        prop_assert_eq!(decode(entry, pc, generation), Some(rule));
        let other_pc = with_equal_index(pc, other_pc);
        prop_assert_eq!(index(other_pc), index(pc));
        if other_pc != pc {
            prop_assert_eq!(decode(entry, other_pc, generation), None);
        }
        if other_generation != generation {
            prop_assert_eq!(decode(entry, pc, other_generation), None);
        }
    }

    #[test]
    fn torn_entry_misses_or_returns_the_common_rule(
        (pc, generation, rule) in entries(),
        (other_pc, _, other_rule) in entries(),
        same_address: bool,
    ) {
        let other_pc = if same_address { pc } else { with_equal_index(pc, other_pc) };
        let first = encode(pc, generation, rule).unwrap();
        let second = encode(other_pc, generation, other_rule).unwrap();
        for torn in [[first[0], second[1]], [second[0], first[1]]] {
            for asked in [pc, other_pc] {
                if let Some(recalled) = decode(torn, asked, generation) {
                    prop_assert!(rule == other_rule && recalled == rule);
                }
            }
        }
    }
}
