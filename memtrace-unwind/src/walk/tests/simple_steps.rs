use super::*;
use crate::RuleCache;
use crate::cache::CachedRule;

impl RuleCache for &Code {
    fn cached(&self, pc: u64) -> Option<CachedRule> {
        let found = (&mut &**self).lookup(pc);
        (found.kind == Kind::Rule).then(|| CachedRule::new(&found.rule, 0))
    }
}

#[test]
fn steps_are_taken_up_to_a_rule_that_is_not_simple() {
    // A function without a frame pointer. Its caller has a frame pointer, and the caller's caller saves the register.
    let with_fp = Rule { cfa_kind: cfa::FP, cfa_offset: 16, fp_kind: fp::AT_CFA, fp_offset: -16, ..Rule::default() };
    let saves_fp = Rule { fp_kind: fp::AT_CFA, fp_offset: -24, ..sp(24) };
    let code = code_with_rules(&[(0x1000, sp(16)), (0x2000, with_fp), (0x3000, saves_fp)]);
    let words = [(8, 0x2010), (32, 0x77), (40, 0x3010), (48, 0x99), (64, OUTERMOST)];
    let stack: Stack = words.map(|(offset, word)| (SP + offset, word)).into();

    let mut walk = Walk::default();
    let mut frames = [0; MAX_FRAMES];
    walk.begin(&after_call(0x1010, SP, SP + 32), MAX_FRAMES as u32, 0);
    walk.simple_steps(&mut frames, &mut &stack, &&code);

    assert_eq!(frames[..walk.count() as usize], [0x1010, 0x2010, 0x3010]);
    let position = walk.position();
    assert_eq!((position.ip, position.sp, position.fp), (OUTERMOST, SP + 72, 0x99));
    assert_eq!(position.flags & LEAF, 0, "the other registers are those of the leaf frame");
}
