//! Every kind of rule, on hand-written stacks.

use super::*;

fn complete(frames: &[u64]) -> WalkResult {
    (frames.to_vec(), End::Complete)
}

#[test]
fn cfa_from_the_stack_pointer() {
    let stack = Stack::from([(SP + 24, OUTERMOST)]);
    assert_eq!(walk(&after_call(0x1010, SP, 0), &stack, &code(sp(32))), complete(&[0x1010, OUTERMOST]));
}

#[test]
fn cfa_from_the_frame_pointer_which_is_restored() {
    let rule = Rule { cfa_kind: cfa::FP, cfa_offset: 16, fp_kind: fp::AT_CFA, fp_offset: -16, ..Rule::default() };
    let stack = Stack::from([(SP + 0x100, SP + 0x200), (SP + 0x108, 0x1020), (SP + 0x200, 0), (SP + 0x208, OUTERMOST)]);
    let found = walk(&after_call(0x1010, SP, SP + 0x100), &stack, &code(rule));
    assert_eq!(found, complete(&[0x1010, 0x1020, OUTERMOST]));
}

#[test]
fn unchanged_frame_pointer_survives_other_frames() {
    let by_fp = Rule { cfa_kind: cfa::FP, cfa_offset: 16, ..Rule::default() };
    let stack = Stack::from([(SP, 0x2010), (SP + 0x108, OUTERMOST)]);
    let found =
        walk(&after_call(0x1010, SP, SP + 0x100), &stack, &code_with_rules(&[(0x1000, sp(8)), (0x2000, by_fp)]));
    assert_eq!(found, complete(&[0x1010, 0x2010, OUTERMOST]));
}

#[test]
fn cfa_of_a_plt_entry_grows_after_its_push() {
    let plt = Rule { cfa_kind: cfa::PLT, cfa_offset: 11, ..Rule::default() };
    let before_the_push = Stack::from([(SP, OUTERMOST), (SP + 8, 1)]);
    let after_the_push = Stack::from([(SP, 1), (SP + 8, OUTERMOST)]);
    for ip in 0x1000..0x1010 {
        let stack = if ip < 0x100b { &before_the_push } else { &after_the_push };
        assert_eq!(walk(&before_instruction(ip, SP, 0), stack, &code(plt)), complete(&[ip + 1, OUTERMOST]), "{ip:#x}");
    }
}

#[test]
fn cfa_from_a_pointer_on_the_stack() {
    let rule = Rule { cfa_kind: cfa::DEREF_SP, cfa_offset: 16, extra: 8, ..Rule::default() };
    let stack = Stack::from([(SP + 16, SP + 0x40), (SP + 0x40, OUTERMOST)]);
    assert_eq!(walk(&after_call(0x1010, SP, 0), &stack, &code(rule)), complete(&[0x1010, OUTERMOST]));
}

#[test]
fn cfa_of_a_realigned_frame_is_read_below_the_frame_pointer() {
    // gcc's output for a function with an aligned local: DW_CFA_def_cfa_expression (DW_OP_breg6 -8; DW_OP_deref) and
    // DW_CFA_expression (rbp; DW_OP_breg6 0).
    let rule = Rule { cfa_kind: cfa::DEREF_FP, cfa_offset: -8, fp_kind: fp::AT_FP, ..Rule::default() };
    let by_fp = Rule { cfa_kind: cfa::FP, cfa_offset: 16, ..Rule::default() };
    let fp = SP + 0x100;
    let stack = Stack::from([(fp - 8, SP + 0x120), (fp, SP + 0x200), (SP + 0x118, 0x2010), (SP + 0x208, OUTERMOST)]);
    let found = walk(&after_call(0x1010, SP, fp), &stack, &code_with_rules(&[(0x1000, rule), (0x2000, by_fp)]));
    assert_eq!(found, complete(&[0x1010, 0x2010, OUTERMOST]));
}

#[test]
fn caller_of_a_c_function_is_on_the_stack_of_its_goroutine() {
    let rule = Rule { cfa_kind: cfa::GOROUTINE, cfa_offset: 40, extra: 48, ..Rule::default() };
    let code = code_with_rules(&[(0x1000, rule), (0x2000, sp(8))]);
    let found = |stack: &Stack| walk(&after_call(0x1010, SP, 0), stack, &code);
    // The stack of the goroutine is below the stack of the thread.
    let (goroutine, end) = (0xc000_0000, 0xc010_0000);
    let distance = 0x80;
    let on_goroutine = [
        (SP + 48, goroutine),
        (SP + 40, distance),
        (goroutine + 8, end),
        (end - distance, 0x2010),
        (end - distance + 8, OUTERMOST),
    ];
    assert_eq!(found(&Stack::from(on_goroutine)), complete(&[0x1010, 0x2010, OUTERMOST]));
    let on_thread = [(SP + 48, 0), (SP + 40, SP + 0x100), (SP + 0x100, OUTERMOST)];
    assert_eq!(found(&Stack::from(on_thread)), complete(&[0x1010, OUTERMOST]));
    let cut = |end| (vec![0x1010], end);
    assert_eq!(found(&Stack::from([(SP + 48, goroutine), (SP + 40, distance)])), cut(End::Unreadable));
    let unaligned = [(SP + 48, 0), (SP + 40, SP + 0x101), (SP + 0x101, OUTERMOST)];
    assert_eq!(found(&Stack::from(unaligned)), cut(End::BadFrame));
}

#[test]
fn signal_frame_restores_the_interrupted_registers() {
    let signal = Rule { cfa_kind: cfa::SIGNAL, ..Rule::default() };
    let by_fp = Rule { cfa_kind: cfa::FP, cfa_offset: 16, ..Rule::default() };
    // The handler runs on an alternate stack above the interrupted stack.
    let (interrupted_sp, interrupted_fp) = (SP - 0x8000, SP - 0x7f00);
    let context = SP + 8 + 40;
    let stack = Stack::from([
        (SP, 0x5000),
        (context + 80, interrupted_fp),
        (context + 120, interrupted_sp),
        (context + 128, 0x3000),
        (interrupted_fp + 8, OUTERMOST),
    ]);
    // The handler returns to the restorer's first instruction; the rule starts one byte before it.
    let code = code_with_rules(&[(0x1000, sp(8)), (0x3000, by_fp), (0x4fff, signal)]);
    let found = walk(&after_call(0x1010, SP, 1), &stack, &code);
    // The frame of the handler is the address after its call. The other two frames are one byte into the first
    // instruction of the restorer, and one byte into the interrupted instruction, which may be the first of its
    // function.
    assert_eq!(found, complete(&[0x1010, 0x5001, 0x3001, OUTERMOST]));
}

#[test]
fn interrupted_pc_is_looked_up_without_subtracting_one() {
    let signal = Rule { cfa_kind: cfa::SIGNAL, ..Rule::default() };
    let context = SP + 40;
    let stack = Stack::from([
        (context + 80, 0),
        (context + 120, SP + 0x400),
        (context + 128, 0x3000),
        (SP + 0x400, OUTERMOST),
        (SP + 0x410, 0x1234),
    ]);
    let code = code_with_rules(&[(0x2000, sp(24)), (0x3000, sp(8)), (0x1000, signal)]);
    assert_eq!(walk(&before_instruction(0x1000, SP, 0), &stack, &code), complete(&[0x1001, 0x3001, OUTERMOST]));
}

#[test]
fn cfa_from_any_register_in_the_leaf() {
    let rule = Rule { cfa_kind: cfa::REGISTER, extra: 10, cfa_offset: 8, ..Rule::default() };
    let mut registers = before_instruction(0x1010, SP, 0);
    registers.numbered[10] = SP + 0x20;
    let stack = Stack::from([(SP + 0x20, OUTERMOST)]);
    assert_eq!(walk(&registers, &stack, &code(rule)), complete(&[0x1011, OUTERMOST]));
}

#[test]
fn cfa_from_numbered_stack_and_frame_pointers() {
    for (number, fp) in [(7, 0), (6, SP)] {
        let rule = Rule { cfa_kind: cfa::REGISTER, extra: number, cfa_offset: 8, ..Rule::default() };
        let stack = Stack::from([(SP - 8, 0x1010), (SP, OUTERMOST)]);
        let code = code_with_rules(&[(0x1000, rule), (0x2000, sp(8))]);
        assert_eq!(
            walk(&before_instruction(0x2010, SP - 8, fp), &stack, &code),
            complete(&[0x2011, 0x1010, OUTERMOST])
        );
    }
}

#[test]
fn return_address_in_a_register_of_the_leaf() {
    // glibc's vfork keeps the return address in rdi during the system call (sysdeps/unix/sysv/linux/x86_64/vfork.S).
    let rule = Rule { ra_kind: ra::REGISTER, extra: 5, ..sp(8) };
    let mut registers = before_instruction(0x1010, SP, 0);
    registers.numbered[5] = OUTERMOST;
    assert_eq!(walk(&registers, &Stack::new(), &code(rule)), complete(&[0x1011, OUTERMOST]));
}

#[test]
fn return_address_at_another_offset_from_the_cfa() {
    let rule = Rule { ra_kind: ra::AT_CFA, extra: -48, ..sp(64) };
    let stack = Stack::from([(SP + 16, OUTERMOST)]);
    assert_eq!(walk(&after_call(0x1010, SP, 0), &stack, &code(rule)), complete(&[0x1010, OUTERMOST]));
}

#[test]
fn zero_return_address_ends_the_walk() {
    let stack = Stack::from([(SP, 0)]);
    assert_eq!(walk(&after_call(0x1010, SP, 0), &stack, &code(sp(8))), complete(&[0x1010]));
}

#[test]
fn uretprobe_trampoline_is_replaced_by_the_return_address() {
    const TRAMPOLINE: u64 = 0x7fff_ffff_e000;
    let mut code = code_with_rules(&[(0x1000, sp(8)), (0x2000, sp(16))]);
    code.replaced_returns = BTreeMap::from([(SP, 0x2010), (SP + 16, OUTERMOST)]);
    let stack = Stack::from([(SP, TRAMPOLINE), (SP + 16, TRAMPOLINE)]);
    assert_eq!(walk(&after_call(0x1010, SP, 0), &stack, &code), complete(&[0x1010, 0x2010, OUTERMOST]));
}

#[test]
fn call_at_the_end_of_a_function_has_its_own_rule() {
    // The callee never returns, so the return address is already in the next function.
    let stack = Stack::from([(SP, 0x2000), (SP + 24, OUTERMOST), (SP + 8, 0x1234)]);
    let code = code_with_rules(&[(0x1000, sp(24)), (0x2000, sp(8)), (0x5000, sp(8))]);
    assert_eq!(walk(&after_call(0x5010, SP, 0), &stack, &code), complete(&[0x5010, 0x2000, OUTERMOST]));
}

#[test]
fn hash_depends_on_frames_their_order_and_the_end() {
    let hash = |seed, ips: &[u64], end| {
        let mut walk = Walk::default();
        walk.begin(&after_call(0, 0, 0), 10, seed);
        for &ip in ips {
            walk.ip = ip;
            walk.push(&mut [0; MAX_FRAMES], true);
        }
        walk.hash(end as u32)
    };
    let hashes = [
        hash(1, &[1, 2], End::Complete),
        hash(2, &[1, 2], End::Complete),
        hash(1, &[2, 1], End::Complete),
        hash(1, &[1], End::Complete),
        hash(1, &[], End::Complete),
        hash(1, &[1, 2], End::Truncated),
    ];
    for (index, one) in hashes.iter().enumerate() {
        assert!(hashes.iter().skip(index + 1).all(|other| other != one), "{index}");
    }
    assert_eq!(hash(1, &[1, 2], End::Complete), hashes[0]);
}
