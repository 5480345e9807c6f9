//! Unwind rules in 29 bits.

use memtrace_common::unwind::{MAX_RULES, Rule, cfa, fp, ra};

/// Unwind rule in an entry of the cache. A *simple* rule is stored as a whole. Any other rule is stored as its index in
/// the table of rules.
///
/// A simple rule has the CFA at an offset from the stack pointer or frame pointer, the return address below the CFA,
/// and the caller's frame pointer unchanged or below the CFA. Compilers emit other rules for few functions only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRule(u32);

/// Bit: the rule is simple.
const SIMPLE: u32 = 1 << 28;
/// Bit: the CFA of a simple rule is at an offset from the frame pointer, not from the stack pointer.
const FROM_FP: u32 = 1 << 27;
/// Lowest bit of the CFA's offset, which is in words.
const CFA_SHIFT: u32 = 11;
const CFA_BITS: u32 = 16;
/// Lowest bits: the distance in words from the CFA down to the saved frame pointer; 0 if the frame pointer is
/// unchanged.
const FP_BITS: u32 = 11;

const WORD: i32 = 8;

impl CachedRule {
    /// Number of bits of a cached rule.
    pub const BITS: u32 = 29;

    /// Encodes `rule`. `number` is the index of the rule, below [`MAX_RULES`].
    #[inline(always)]
    #[must_use]
    pub const fn new(rule: &Rule, number: u32) -> Self {
        let is_from_fp = rule.cfa_kind == cfa::FP;
        let is_plain_cfa = (is_from_fp || rule.cfa_kind == cfa::SP) && rule.ra_kind == ra::AT_CFA_MINUS_8;
        let below = match rule.fp_kind {
            fp::SAME => Some(0),
            fp::AT_CFA if rule.fp_offset < 0 => words(rule.fp_offset.wrapping_neg(), FP_BITS),
            _ => None,
        };
        match (words(rule.cfa_offset, CFA_BITS), below) {
            (Some(offset), Some(below)) if is_plain_cfa => {
                Self(SIMPLE | if is_from_fp { FROM_FP } else { 0 } | offset << CFA_SHIFT | below)
            }
            _ => Self(number & (MAX_RULES as u32 - 1)),
        }
    }

    /// Returns the rule with these bits. Bits from [`Self::BITS`] on must be zero.
    #[inline(always)]
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if the rule is simple.
    #[inline(always)]
    #[must_use]
    pub const fn is_simple(self) -> bool {
        self.0 & SIMPLE != 0
    }

    /// Returns the index of a rule that is not simple.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & (MAX_RULES as u32 - 1)
    }

    /// Decodes a simple rule.
    #[inline(always)]
    #[must_use]
    pub const fn simple(self) -> Rule {
        let below = self.fp_below_cfa() as i32;
        Rule {
            cfa_kind: if self.is_from_fp() { cfa::FP } else { cfa::SP },
            fp_kind: if below == 0 { fp::SAME } else { fp::AT_CFA },
            ra_kind: ra::AT_CFA_MINUS_8,
            reserved: 0,
            cfa_offset: self.cfa_offset() as i32,
            fp_offset: below.wrapping_neg(),
            extra: 0,
        }
    }

    /// Returns true if the CFA of a simple rule is at an offset from the frame pointer, not from the stack pointer.
    #[inline(always)]
    pub(crate) const fn is_from_fp(self) -> bool {
        self.0 & FROM_FP != 0
    }

    /// Returns the offset of the CFA of a simple rule, in bytes.
    #[inline(always)]
    pub(crate) const fn cfa_offset(self) -> u64 {
        ((self.0 >> CFA_SHIFT & ((1 << CFA_BITS) - 1)) * WORD as u32) as u64
    }

    /// Returns the distance in bytes from the CFA of a simple rule down to the saved frame pointer; 0 if the frame
    /// pointer is unchanged.
    #[inline(always)]
    pub(crate) const fn fp_below_cfa(self) -> u64 {
        ((self.0 & ((1 << FP_BITS) - 1)) * WORD as u32) as u64
    }
}

/// Returns the number of words in `bytes`, if it is a whole number of at most `bits` bits.
#[inline(always)]
const fn words(bytes: i32, bits: u32) -> Option<u32> {
    if bytes >= 0 && bytes % WORD == 0 && bytes / WORD < 1 << bits {
        Some((bytes / WORD).cast_unsigned())
    } else {
        None
    }
}

const _: () = {
    assert!(MAX_RULES.is_power_of_two() && MAX_RULES <= SIMPLE as usize);
    assert!(FP_BITS == CFA_SHIFT && 1 << (CFA_SHIFT + CFA_BITS) == FROM_FP);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> impl Strategy<Value = Rule> {
        let offset = prop_oneof![-40i32..40, -20_000i32..600_000, any::<i32>()];
        (0u8..12, 0u8..5, 0u8..5, offset.clone(), offset, -2i32..20).prop_map(
            |(cfa_kind, fp_kind, ra_kind, cfa_offset, fp_offset, extra)| Rule {
                cfa_kind,
                fp_kind,
                ra_kind,
                reserved: 0,
                cfa_offset,
                fp_offset,
                extra,
            },
        )
    }

    #[test]
    fn rules_of_common_functions_are_simple() {
        let common = [
            // sub $24,%rsp
            Rule { cfa_kind: cfa::SP, cfa_offset: 32, ..Rule::default() },
            // push %rbp; mov %rsp,%rbp
            Rule { cfa_kind: cfa::FP, fp_kind: fp::AT_CFA, cfa_offset: 16, fp_offset: -16, ..Rule::default() },
            // push %rbp as one of several registers
            Rule { cfa_kind: cfa::SP, fp_kind: fp::AT_CFA, cfa_offset: 4096, fp_offset: -48, ..Rule::default() },
        ];
        for rule in common {
            let cached = CachedRule::new(&rule, 7);
            assert!(cached.is_simple());
            assert_eq!(cached.simple(), rule);
        }
    }

    proptest! {
        #[test]
        fn rule_is_itself_or_its_number(rule in rules(), number in 0u32..MAX_RULES as u32) {
            let cached = CachedRule::new(&rule, number);
            prop_assert_eq!(CachedRule::from_bits(cached.bits()), cached);
            if cached.is_simple() {
                // A simple rule uses no `extra`, and no `fp_offset` if the frame pointer is unchanged.
                let fp_offset = if rule.fp_kind == fp::SAME { 0 } else { rule.fp_offset };
                prop_assert_eq!(cached.simple(), Rule { fp_offset, extra: 0, ..rule });
            } else {
                prop_assert_eq!(cached.number(), number);
            }
        }
    }
}
