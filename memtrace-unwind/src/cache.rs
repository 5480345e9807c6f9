//! Lock-free cache of unwind rules by address, with entries of two words.
//!
//! The two words are written separately, and a writer can be preempted by another one of the same entry. The second
//! word holds the rule, the first its XOR with the key, so that halves of two different writes do not match the key
//! (Hyatt and Mann, "A lock-less transposition table implementation for parallel search", 2002).

use memtrace_common::unwind::MAX_RULES;

/// Number of entries of a cache.
pub const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 12;

/// User addresses with four levels of page tables (Documentation/arch/x86/x86_64/mm.rst).
const ADDRESS_BITS: u32 = 47;

/// Cache entry; all zeros is an empty entry.
pub type Entry = [u64; 2];

/// Returns the index of the entry of `pc`.
#[inline(always)]
#[must_use]
pub const fn index(pc: u64) -> u32 {
    ((pc ^ (pc >> ENTRY_BITS)) & (ENTRIES as u64 - 1)) as u32
}

/// Returns the entry for rule number `rule` at `pc`, in this generation of a process's mappings; `None` if a value is
/// too large for an entry.
#[inline(always)]
#[must_use]
pub const fn encode(pc: u64, generation: u32, rule: u32) -> Option<Entry> {
    if pc >> ADDRESS_BITS != 0 || rule >= MAX_RULES as u32 {
        return None;
    }
    // Within a generation, rule and address use different bits: the rule the upper ones, the address the lower ones.
    let value = generation as u64 | (rule as u64) << ADDRESS_BITS;
    Some([key(pc, generation) ^ value, value])
}

/// Returns the rule number in `entry` if it belongs to `pc` and this generation, which must not be 0.
#[inline(always)]
#[must_use]
pub const fn decode(entry: Entry, pc: u64, generation: u32) -> Option<u32> {
    let [mixed, value] = entry;
    if pc >> ADDRESS_BITS != 0 || mixed ^ value != key(pc, generation) || value as u32 != generation {
        return None;
    }
    Some((value >> ADDRESS_BITS) as u32 & (MAX_RULES as u32 - 1))
}

#[inline(always)]
const fn key(pc: u64, generation: u32) -> u64 {
    pc | (generation as u64) << ADDRESS_BITS
}

const _: () = {
    assert!(MAX_RULES.is_power_of_two());
    assert!(ADDRESS_BITS + MAX_RULES.trailing_zeros() <= u64::BITS);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_entry_never_hits() {
        for generation in [1, 2, u32::MAX] {
            assert_eq!(decode([0, 0], 0, generation), None);
            assert_eq!(decode([0, 0], 0x40_1000, generation), None);
        }
    }

    #[test]
    fn oversized_values_are_not_stored() {
        assert_eq!(encode(1 << ADDRESS_BITS, 1, 1), None);
        assert_eq!(encode(0x1000, 1, MAX_RULES as u32), None);
        let entry = encode(0x1000, 1, 7).unwrap();
        assert_eq!(decode(entry, 0x1000 | 1 << ADDRESS_BITS, 1), None);
    }

    fn entries() -> impl Strategy<Value = (u64, u32, u32)> {
        (0u64..1 << ADDRESS_BITS, 1u32.., 0u32..MAX_RULES as u32)
    }

    proptest! {
        #[test]
        fn entry_hits_only_for_its_address_and_generation(
            (pc, generation, rule) in entries(),
            (other_pc, other_generation, _) in entries(),
        ) {
            let entry = encode(pc, generation, rule).unwrap();
            prop_assert_eq!(decode(entry, pc, generation), Some(rule));
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
            let other_pc = if same_address { pc } else { other_pc };
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
}
