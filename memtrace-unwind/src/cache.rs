//! Lock-free cache of unwind rules by address, with entries of two words.
//!
//! The two words are written separately, and another writer of the same entry can preempt a writer. The second word holds the
//! rule, and the first word the XOR of the second word and the key, so that halves of two different writes do not match the key
//! (Hyatt and Mann, "A lock-less transposition table implementation for parallel search", 2002). Halves from two writes of one
//! generation never match. Halves from writes of two generations match with a probability of about 2^-29.

mod rule;

pub use self::rule::CachedRule;

/// Number of entries of a cache.
const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 12;

/// Number of entries of each half of a cache. A half has the largest size of a value in a per-CPU map, 32 KiB
/// (`PCPU_MIN_UNIT_SIZE`, include/linux/percpu.h).
pub const HALF: u32 = ENTRIES as u32 / 2;

/// Number of bits of a user address with four levels of page tables (Documentation/arch/x86/x86_64/mm.rst).
const ADDRESS_BITS: u32 = 47;

/// Number of bits of an address that an entry stores. With the index of the entry, these bits determine the address.
const TAG_BITS: u32 = ADDRESS_BITS - ENTRY_BITS;

/// Cache entry; all zeros is an empty entry.
pub type Entry = [u64; 2];

/// Returns the index of the entry of `pc`.
#[inline(always)]
#[must_use]
pub const fn index(pc: u64) -> u32 {
    ((pc ^ (pc >> ENTRY_BITS)) & (ENTRIES as u64 - 1)) as u32
}

/// Returns the entry for the rule at `pc` in this generation of a process's mappings; `None` if `pc` is too large for
/// an entry.
#[inline(always)]
#[must_use]
pub const fn encode(pc: u64, generation: u32, rule: CachedRule) -> Option<Entry> {
    if pc >> ADDRESS_BITS != 0 {
        return None;
    }
    // Within a generation, the rule and the address use different bits of a word: the rule uses the upper bits, and the
    // address uses the lower bits.
    let value = generation as u64 | (rule.bits() as u64) << TAG_BITS;
    Some([key(pc, generation) ^ value, value])
}

/// Returns the rule in `entry`, the entry at the index of `pc`, if it belongs to `pc` and to this generation. The
/// generation must not be 0.
#[inline(always)]
#[must_use]
pub const fn decode(entry: Entry, pc: u64, generation: u32) -> Option<CachedRule> {
    let [mixed, value] = entry;
    if pc >> ADDRESS_BITS != 0 || mixed ^ value != key(pc, generation) || value as u32 != generation {
        return None;
    }
    Some(CachedRule::from_bits((value >> TAG_BITS) as u32))
}

#[inline(always)]
const fn key(pc: u64, generation: u32) -> u64 {
    // Generations are consecutive numbers. The multiplier, the golden ratio, spreads their differences over the bits
    // that a rule has in the value (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
    let spread = generation.wrapping_mul(0x9E37_79B1) >> (u32::BITS - CachedRule::BITS);
    pc >> ENTRY_BITS | (spread as u64) << TAG_BITS
}

const _: () = {
    assert!(TAG_BITS + CachedRule::BITS == u64::BITS);
    assert!(HALF as usize * size_of::<Entry>() == 32 << 10);
};

#[cfg(test)]
mod tests;
