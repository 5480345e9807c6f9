//! Steps with simple rules. Most steps are of this kind.

use core::hint::black_box;

use memtrace_common::wire::MAX_FRAMES;

use super::{BY_FP, FP_KNOWN, LEAF, MAX_FRAME_BYTES, RETURN, Walk, check_cfa, mix};
use crate::{Memory, RuleCache};

/// Maximum number of steps of one call of [`Walk::simple_steps`]. The verifier follows each step.
const MAX_STEPS: usize = 32;

impl Walk {
    /// Returns true if [`Self::simple_steps`] can take a step from the current frame.
    #[inline(always)]
    #[must_use]
    pub const fn can_be_simple(&self) -> bool {
        self.flags & (RETURN | FP_KNOWN | BY_FP) == RETURN | FP_KNOWN
    }

    /// Takes up to `MAX_STEPS` steps, while the rule of the frame is cached and simple and the caller is found. The
    /// next [`Walk::step`] continues the walk.
    ///
    /// Each step has the same result as [`Walk::step`], but it looks up nothing in a table, and the position of the
    /// walk stays in registers.
    #[inline(always)]
    pub fn simple_steps(&mut self, frames: &mut [u64; MAX_FRAMES], memory: &mut impl Memory, rules: &impl RuleCache) {
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
            // The mask changes nothing, but shows the bound to the verifier. Without `black_box`, the compiler drops
            // it.
            frames[black_box(count as usize) & (MAX_FRAMES - 1)] = ip;
            hash = mix(hash, ip);
            count += 1;
            ip = return_address;
            sp = cfa;
            fp = caller_fp;
        }
        if count != self.count {
            self.flags &= !LEAF;
        }
        self.ip = ip;
        self.sp = sp;
        self.fp = fp;
        self.hash = hash;
        self.count = count;
    }
}
