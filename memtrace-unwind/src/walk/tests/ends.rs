//! Every reason for a walk to end before the outermost frame.

use super::*;

fn walk_one_frame(rule: Rule, stack: &Stack) -> WalkResult {
    walk(&after_call(0x1010, SP, SP + 0x100), stack, &code(rule))
}

fn ended_at_leaf(end: End) -> WalkResult {
    (vec![0x1010], end)
}

#[test]
fn unmapped_address_is_the_last_frame() {
    let stack = Stack::from([(SP, 0xdead_0000)]);
    assert_eq!(walk_one_frame(sp(8), &stack), (vec![0x1010, 0xdead_0000], End::NoMapping));
}

#[test]
fn address_without_a_rule_is_the_last_frame() {
    for end in [End::TablePending, End::NoTable, End::NoRow] {
        let mut code = code(sp(8));
        code.ranges.push((0x5000..0x6000, Lookup::end(end)));
        let found = walk(&after_call(0x1010, SP, 0), &Stack::from([(SP, 0x5010)]), &code);
        assert_eq!(found, (vec![0x1010, 0x5010], end));
    }
}

#[test]
fn empty_rules_end_the_walk() {
    assert_eq!(walk_one_frame(Rule::default(), &Stack::new()), ended_at_leaf(End::NoRow));
    for kind in [cfa::UNTABLED, 11, 255] {
        assert_eq!(
            walk_one_frame(Rule { cfa_kind: kind, ..Rule::default() }, &Stack::new()),
            ended_at_leaf(End::Untabled)
        );
    }
}

#[test]
fn unreadable_words_end_the_walk() {
    let rules = [
        sp(8),
        Rule { fp_kind: fp::AT_CFA, fp_offset: -16, ..sp(24) },
        Rule { fp_kind: fp::AT_FP, ..sp(8) },
        Rule { ra_kind: ra::AT_CFA, extra: -8, ..sp(8) },
        Rule { cfa_kind: cfa::DEREF_SP, ..Rule::default() },
        Rule { cfa_kind: cfa::DEREF_FP, ..Rule::default() },
    ];
    for rule in rules {
        assert_eq!(walk_one_frame(rule, &Stack::new()), ended_at_leaf(End::Unreadable), "{rule:?}");
    }
    let signal = Rule { cfa_kind: cfa::SIGNAL, ..Rule::default() };
    assert_eq!(walk_one_frame(signal, &Stack::new()), (vec![0x1011], End::Unreadable));
}

#[test]
fn cfa_not_above_the_stack_pointer_is_rejected() {
    for offset in [0, -8, i32::MIN] {
        assert_eq!(walk_one_frame(sp(offset), &Stack::new()), ended_at_leaf(End::BadFrame), "{offset}");
    }
}

#[test]
fn cfa_too_far_away_is_rejected() {
    assert_eq!(walk_one_frame(sp(8 << 20), &Stack::new()), ended_at_leaf(End::BadFrame));
    let stack = Stack::from([(SP + (8 << 20) - 16, OUTERMOST)]);
    assert_eq!(walk_one_frame(sp((8 << 20) - 8), &stack), (vec![0x1010, OUTERMOST], End::Complete));
}

#[test]
fn unaligned_cfa_is_rejected() {
    for offset in 9..16 {
        assert_eq!(walk_one_frame(sp(offset), &Stack::new()), ended_at_leaf(End::BadFrame), "{offset}");
    }
}

#[test]
fn unknown_frame_pointer_ends_the_walk_only_if_needed() {
    let loses_fp = Rule { fp_kind: fp::UNDEFINED, ..sp(8) };
    let below_itself = Rule { fp_kind: fp::AT_FP, ..sp(8) };
    let stack = Stack::from([(SP, 0x2010), (SP + 8, 0x3010), (SP + 16, 0x4010), (SP + 24, OUTERMOST)]);
    let registers = after_call(0x1010, SP, SP + 0x100);
    for needs in [cfa::FP, cfa::DEREF_FP] {
        let needs = Rule { cfa_kind: needs, cfa_offset: 16, ..Rule::default() };
        let code = code_with_rules(&[(0x1000, loses_fp), (0x2000, below_itself), (0x3000, needs)]);
        assert_eq!(walk(&registers, &stack, &code), (vec![0x1010, 0x2010, 0x3010], End::RegisterLost));
    }
    let without_fp = code_with_rules(&[(0x1000, loses_fp), (0x2000, below_itself), (0x3000, sp(8)), (0x4000, sp(8))]);
    let all = vec![0x1010, 0x2010, 0x3010, 0x4010, OUTERMOST];
    assert_eq!(walk(&registers, &stack, &without_fp), (all, End::Complete));
}

#[test]
fn saved_frame_pointer_becomes_known_again() {
    let loses_fp = Rule { fp_kind: fp::UNDEFINED, ..sp(8) };
    let saved = Rule { fp_kind: fp::AT_CFA, fp_offset: -16, ..sp(16) };
    let needs = Rule { cfa_kind: cfa::FP, cfa_offset: 16, ..Rule::default() };
    let stack = Stack::from([(SP, 0x2010), (SP + 8, SP + 0x80), (SP + 16, 0x3010), (SP + 0x88, OUTERMOST)]);
    let code = code_with_rules(&[(0x1000, loses_fp), (0x2000, saved), (0x3000, needs)]);
    let found = walk(&after_call(0x1010, SP, 0), &stack, &code);
    assert_eq!(found, (vec![0x1010, 0x2010, 0x3010, OUTERMOST], End::Complete));
}

#[test]
fn other_registers_are_known_only_in_the_leaf() {
    let by_register = Rule { cfa_kind: cfa::REGISTER, extra: 10, cfa_offset: 8, ..Rule::default() };
    let from_register = Rule { ra_kind: ra::REGISTER, extra: 5, ..sp(8) };
    let stack = Stack::from([(SP, 0x1010)]);
    let mut registers = after_call(0x2010, SP, 0);
    registers.numbered = [SP; NUMBERED];
    for rule in [by_register, from_register] {
        let code = code_with_rules(&[(0x1000, rule), (0x2000, sp(8))]);
        assert_eq!(walk(&registers, &stack, &code), (vec![0x2010, 0x1010], End::RegisterLost));
    }
}

#[test]
fn nonexistent_registers_end_the_walk() {
    for number in [-1, 16, 17, i32::MAX, i32::MIN] {
        let rule = Rule { cfa_kind: cfa::REGISTER, extra: number, cfa_offset: 8, ..Rule::default() };
        assert_eq!(walk_one_frame(rule, &Stack::new()), ended_at_leaf(End::RegisterLost), "{number}");
    }
    assert_eq!(
        walk_one_frame(Rule { ra_kind: ra::LINK_REGISTER, ..sp(8) }, &Stack::new()),
        ended_at_leaf(End::RegisterLost)
    );
}

#[test]
fn walk_ends_at_the_requested_depth() {
    let stack: Stack = (0..400).map(|index| (SP + index * 8, 0x1010)).collect();
    let registers = after_call(0x1010, SP, 0);
    for depth in [0, 1, 2, 128, 256] {
        let (frames, end) = walk_to(depth, &registers, &stack, &code(sp(8)));
        assert_eq!((frames.len(), end), (depth as usize, End::Truncated));
    }
    let (frames, end) = walk_to(1000, &registers, &stack, &code(sp(8)));
    assert_eq!((frames.len(), end), (MAX_FRAMES, End::Truncated));
}

#[test]
fn stack_exactly_as_deep_as_requested_is_complete() {
    let stack = Stack::from([(SP, 0x1020), (SP + 8, OUTERMOST)]);
    let registers = after_call(0x1010, SP, 0);
    assert_eq!(walk_to(3, &registers, &stack, &code(sp(8))), (vec![0x1010, 0x1020, OUTERMOST], End::Complete));
    assert_eq!(walk_to(2, &registers, &stack, &code(sp(8))), (vec![0x1010, 0x1020], End::Truncated));
}

#[test]
fn walk_without_a_row_is_complete_at_the_start_of_the_stack() {
    let mut code = code(sp(8));
    code.ranges.push((0x5000..0x6000, Lookup::end(End::NoRow)));
    let stack = Stack::from([(SP, 0x5010)]);
    let mut ended = Walk::default();
    let mut frames = [0; MAX_FRAMES];
    ended.begin(&after_call(0x1010, SP, 0), 10, 0);
    while ended.step(&mut frames, &mut &stack, &mut &code).is_continue() {}
    let end = |distance: u64| ended.end_without_row(SP + 8 + distance);
    assert_eq!([0, 96, MAX_START_BYTES].map(end), [End::Complete; 3]);
    assert_eq!([MAX_START_BYTES + 1, 1 << 20, u64::MAX - SP - 8].map(end), [End::NoRow; 3]);
    assert_eq!(ended.end_without_row(SP), End::NoRow, "the stack of another thread is above");
}
