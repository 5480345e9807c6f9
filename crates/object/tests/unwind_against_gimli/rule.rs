//! Evaluation of a rule, written from the documentation of `memtrace_common::unwind` only.

use memtrace_common::unwind::{Rule, cfa, fp, ra};

use crate::frame::{Caller, Frame};

const RBP: u16 = 6;
const RSP: u16 = 7;

/// Applies `rule` to `frame`, which is a leaf frame: all registers are known.
pub(crate) fn evaluate(rule: Rule, frame: &Frame) -> Caller {
    let (sp, bp) = (frame.register(RSP), frame.register(RBP));
    let plus = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
    let extra = || u16::try_from(rule.extra).unwrap();
    assert_eq!(rule.reserved, 0);
    let cfa = match rule.cfa_kind {
        cfa::NONE => return Caller::Unknown,
        cfa::SP => plus(sp, rule.cfa_offset),
        cfa::FP => plus(bp, rule.cfa_offset),
        cfa::PLT if frame.pc & 15 >= u64::try_from(rule.cfa_offset).unwrap() => plus(sp, 16),
        cfa::PLT => plus(sp, 8),
        cfa::DEREF_SP => plus(frame.memory(plus(sp, rule.cfa_offset)), rule.extra),
        cfa::DEREF_FP => plus(frame.memory(plus(bp, rule.cfa_offset)), rule.extra),
        // `struct ucontext`, arch/x86/include/uapi/asm/sigcontext.h: rbp, rsp and rip, in this order.
        cfa::SIGNAL => {
            let [fp, cfa, ra] = [120, 160, 168].map(|offset| frame.memory(plus(sp, offset)));
            return Caller::Found { cfa, sp: cfa, fp: Some(fp), ra };
        }
        cfa::END => return Caller::None,
        cfa::REGISTER => plus(frame.register(extra()), rule.cfa_offset),
        kind => panic!("a CFA of kind {kind}"),
    };
    let fp = match rule.fp_kind {
        fp::SAME => Some(bp),
        fp::AT_CFA => Some(frame.memory(plus(cfa, rule.fp_offset))),
        fp::AT_FP => Some(frame.memory(plus(bp, rule.fp_offset))),
        fp::UNDEFINED => None,
        kind => panic!("a frame pointer of kind {kind}"),
    };
    let ra = match rule.ra_kind {
        ra::AT_CFA_MINUS_8 => frame.memory(plus(cfa, -8)),
        ra::AT_CFA => frame.memory(plus(cfa, rule.extra)),
        ra::REGISTER => frame.register(extra()),
        kind => panic!("a return address of kind {kind}"),
    };
    Caller::Found { cfa, sp: cfa, fp, ra }
}
