//! Steps with simple rules, which are most of all steps.

use core::hint::black_box;

use memtrace_common::wire::MAX_FRAMES;

use super::{BY_FP, FP_KNOWN, LEAF, MAX_FRAME_BYTES, RETURN, Walk, check_cfa, mix};
use crate::{Memory, RuleCache};

/// Number of steps that [`Walk::simple_steps`] takes at most. The verifier follows each one.
const MAX_STEPS: usize = 32;

impl Walk {
    /// Returns true if [`Self::simple_steps`] can take a step from the current frame.
    #[inline(always)]
    #[must_use]
    pub const fn can_be_simple(&self) -> bool {
        self.flags & (RETURN | FP_KNOWN | BY_FP) == RETURN | FP_KNOWN
    }

    /// Takes steps while the rule of the frame is cached and simple. The next [`Walk::step`] goes on from there.
    ///
    /// The result is that of [`Walk::step`]. The position stays in registers, and nothing is looked up in a table.
    #[inline(always)]
    pub fn simple_steps(
        &mut self,
        frames: &mut [u64; MAX_FRAMES],
        memory: &mut impl Memory,
        rules: &mut impl RuleCache,
    ) {
        if !self.can_be_simple() {
            return;
        }
        let Self { mut ip, mut sp, mut fp, mut hash, mut count, depth, .. } = *self;
        for _ in 0..MAX_STEPS {
            if count >= depth || count as usize >= MAX_FRAMES {
                break;
            }
            let Some(rule) = rules.cached(ip.wrapping_sub(1)) else { break };
            if !rule.is_simple() {
                break;
            }
            let cfa = if rule.is_from_fp() { fp } else { sp }.wrapping_add(rule.cfa_offset());
            if check_cfa(sp, cfa, MAX_FRAME_BYTES).is_err() {
                break;
            }
            // The frame pointer is stored below the return address, so it is read first, as in `by_rule`.
            let below = rule.fp_below_cfa();
            let caller_fp = if below == 0 { Some(fp) } else { memory.word(cfa.wrapping_sub(below)) };
            let Some(caller_fp) = caller_fp else { break };
            let Some(return_address) = memory.word(cfa.wrapping_sub(8)) else { break };
            if return_address == 0 {
                break;
            }
            // The mask changes nothing, but shows the bound to the verifier. Without `black_box`, the compiler drops it.
            frames[black_box(count as usize) & (MAX_FRAMES - 1)] = ip;
            hash = mix(hash, ip);
            count += 1;
            self.flags &= !LEAF;
            ip = return_address;
            sp = cfa;
            fp = caller_fp;
        }
        self.ip = ip;
        self.sp = sp;
        self.fp = fp;
        self.hash = hash;
        self.count = count;
    }
}

#[cfg(test)]
mod tests {
    use memtrace_common::unwind::{Rule, cfa, fp};

    use super::*;
    use crate::Registers;
    use crate::cache::CachedRule;

    /// Words by address.
    struct Stack<'words>(&'words [(u64, u64)]);

    impl Memory for Stack<'_> {
        fn word(&mut self, address: u64) -> Option<u64> {
            self.0.iter().find(|(at, _)| *at == address).map(|(_, word)| *word)
        }
    }

    /// Rules by address of the call.
    struct Rules<'rules>(&'rules [(u64, Rule)]);

    impl RuleCache for Rules<'_> {
        fn cached(&mut self, pc: u64) -> Option<CachedRule> {
            self.0.iter().find(|(address, _)| *address == pc).map(|(_, rule)| CachedRule::new(rule, 0))
        }
    }

    #[test]
    fn steps_are_taken_up_to_a_rule_that_is_not_simple() {
        // A function without a frame, called by one with a frame pointer, called by one that saves it.
        let rules = [
            (0xfff, Rule { cfa_kind: cfa::SP, cfa_offset: 16, ..Rule::default() }),
            (
                0x1fff,
                Rule { cfa_kind: cfa::FP, cfa_offset: 16, fp_kind: fp::AT_CFA, fp_offset: -16, ..Rule::default() },
            ),
            (
                0x2fff,
                Rule { cfa_kind: cfa::SP, cfa_offset: 24, fp_kind: fp::AT_CFA, fp_offset: -24, ..Rule::default() },
            ),
            (0x3fff, Rule { cfa_kind: cfa::END, ..Rule::default() }),
        ];
        let stack = [(88, 0x2000), (112, 0x77), (120, 0x3000), (128, 0x99), (144, 0x4000)];
        let mut numbered = [0; 16];
        (numbered[6], numbered[7]) = (112, 80);
        let mut walk = Walk::default();
        walk.begin(&Registers { ip: 0x1000, ip_is_return: true, numbered }, 100, 0);
        let mut frames = [0; MAX_FRAMES];
        walk.simple_steps(&mut frames, &mut Stack(&stack), &mut Rules(&rules));
        assert_eq!(frames[..walk.count() as usize], [0x1000, 0x2000, 0x3000]);
        let position = walk.position();
        assert_eq!((position.ip, position.sp, position.fp), (0x4000, 152, 0x99));
        assert_eq!(position.flags & LEAF, 0, "the other registers are those of the leaf frame");
    }
}
