//! Frames that are found by frame pointer: in JIT code, and in objects where the table has no row.

use super::*;

/// Results of lookups in code without rows, and the end of a walk that finds no caller there.
const WITHOUT_ROWS: [(Lookup, End); 3] =
    [(Lookup::GENERATED, End::GeneratedCut), (Lookup::end(End::NoRow), End::NoRow), (Lookup::rule(NO_ROW), End::NoRow)];

const NO_ROW: Rule =
    Rule { cfa_kind: cfa::NONE, fp_kind: 0, ra_kind: 0, reserved: 0, cfa_offset: 0, fp_offset: 0, extra: 0 };

/// Returns code without rows from 0x5000 to 0x5fff, code with frames of eight bytes at 0x1000, and the outermost frame.
fn with_code(found: Lookup) -> Code {
    let mut code = code(sp(8));
    code.ranges.push((0x5000..0x6000, found));
    code
}

#[test]
fn frame_pointers_lead_through_code_without_rows() {
    let fp = SP + 0x40;
    let stack = Stack::from([(SP, 0x5010), (fp, fp + 0x40), (fp + 8, 0x5020), (fp + 0x40, 0), (fp + 0x48, OUTERMOST)]);
    for (found, _) in WITHOUT_ROWS {
        let result = walk(&after_call(0x1010, SP, fp), &stack, &with_code(found));
        assert_eq!(result, (vec![0x1010, 0x5010, by_fp(0x5020), by_fp(OUTERMOST)], End::Generated));
    }
}

#[test]
fn tables_apply_again_after_a_frame_found_by_frame_pointer() {
    // The rule of the caller is relative to its frame pointer, which the step has restored.
    let relative = Rule { cfa_kind: cfa::FP, cfa_offset: 16, fp_kind: fp::AT_CFA, fp_offset: -16, ..Rule::default() };
    let fp = SP + 0x40;
    let outer = fp + 0x80;
    let stack = Stack::from([(fp, outer), (fp + 8, 0x2010), (outer, 0), (outer + 8, 0x1010), (outer + 16, OUTERMOST)]);
    for (found, _) in WITHOUT_ROWS {
        let mut code = with_code(found);
        code.ranges.push((0x2000..0x3000, Lookup::rule(relative)));
        let result = walk(&after_call(0x5010, SP, fp), &stack, &code);
        assert_eq!(result, (vec![0x5010, by_fp(0x2010), 0x1010, OUTERMOST], End::Generated));
    }
}

#[test]
fn other_registers_are_unknown_after_a_frame_pointer_step() {
    let by_register = Rule { cfa_kind: cfa::REGISTER, extra: 3, cfa_offset: 8, ..Rule::default() };
    let mut code = with_code(Lookup::GENERATED);
    code.ranges.push((0x2000..0x3000, Lookup::rule(by_register)));
    let mut registers = after_call(0x5010, SP, SP);
    registers.numbered[3] = SP + 0x40;
    let stack = Stack::from([(SP, SP + 0x20), (SP + 8, 0x2010), (SP + 0x40, OUTERMOST)]);
    assert_eq!(walk(&registers, &stack, &code), (vec![0x5010, by_fp(0x2010)], End::RegisterLost));
}

fn walk_from_code_without_rows(found: Lookup, fp: u64, stack: &Stack) -> WalkResult {
    walk(&after_call(0x5010, SP, fp), stack, &with_code(found))
}

#[test]
fn implausible_frame_pointers_end_the_walk() {
    let stack: Stack = [SP - 16, SP - 8, SP, SP + 8, SP + (1 << 20), SP + (1 << 20) + 8]
        .into_iter()
        .map(|address| (address, 0x5020))
        .collect();
    for (found, end) in WITHOUT_ROWS {
        for fp in [0, SP - 8, SP + 1, SP + 4, SP + (1 << 20), u64::MAX, u64::MAX - 15] {
            assert_eq!(walk_from_code_without_rows(found, fp, &stack), (vec![0x5010], end), "{fp:#x}");
        }
    }
}

#[test]
fn frame_pointer_to_no_frame_ends_the_walk() {
    let no_stacks = [
        Stack::new(),
        Stack::from([(SP, 0)]),
        Stack::from([(SP, 0), (SP + 8, 0)]),
        // The value above the frame pointer is no address of code, or no call precedes it.
        Stack::from([(SP, SP + 16), (SP + 8, 0xdead_0000), (0xdead_0000 - 8, INDIRECT_CALL)]),
        Stack::from([(SP, SP + 16), (SP + 8, 0x1010), (0x1008, 0x9090_9090_9090_9090)]),
    ];
    for (found, end) in WITHOUT_ROWS {
        for stack in &no_stacks {
            assert_eq!(walk_from_code_without_rows(found, SP, stack), (vec![0x5010], end), "{stack:x?}");
        }
    }
}

#[test]
fn chain_of_frame_pointers_must_go_up() {
    for (found, end) in WITHOUT_ROWS {
        let saved = |next| Stack::from([(SP, next), (SP + 8, 0x5020), (SP - 0x40, SP), (SP - 0x38, 0x5020)]);
        // The saved value points into the frame itself, so it is no frame pointer.
        for next in [SP, SP + 8] {
            assert_eq!(walk_from_code_without_rows(found, SP, &saved(next)), (vec![0x5010], end), "{next:#x}");
        }
        // One step is accepted: a caller with rows may use the frame pointer register for another value.
        let one_step = (vec![0x5010, by_fp(0x5020)], end);
        assert_eq!(walk_from_code_without_rows(found, SP, &saved(SP - 0x40)), one_step);
    }
}

#[test]
fn frame_pointer_of_an_outer_function_is_rejected() {
    // The function at 0x2000 has a frame pointer. It calls the code without rows, which sets no frame pointer. The
    // register leads to the caller of 0x2000. The direct call there has the target 0x2000, not the code without rows.
    let outer = SP + 0x40;
    let mut stack = Stack::from([(outer, 0), (outer + 8, OUTERMOST)]);
    for (found, end) in WITHOUT_ROWS {
        let mut code = with_code(found);
        code.ranges.push((0x2000..0x3000, Lookup::rule(sp(8))));
        stack.insert(OUTERMOST - 8, call(0x2000, OUTERMOST));
        assert_eq!(walk(&after_call(0x5010, SP, outer), &stack, &code), (vec![0x5010], end));
        stack.insert(OUTERMOST - 8, call(0x5000, OUTERMOST));
        let complete = (vec![0x5010, by_fp(OUTERMOST)], End::Generated);
        assert_eq!(walk(&after_call(0x5010, SP, outer), &stack, &code), complete);
    }
}

#[test]
fn return_address_in_jit_code_needs_no_call() {
    // The interpreter of HotSpot pushes return addresses that follow no call.
    let stack = Stack::from([(SP, SP + 16), (SP + 8, 0x5020), (0x5018, 0), (SP + 16, 0), (SP + 24, OUTERMOST)]);
    let complete = (vec![0x5010, by_fp(0x5020), by_fp(OUTERMOST)], End::Generated);
    assert_eq!(walk_from_code_without_rows(Lookup::GENERATED, SP, &stack), complete);
    for (found, end) in &WITHOUT_ROWS[1..] {
        assert_eq!(walk_from_code_without_rows(*found, SP, &stack), (vec![0x5010], *end));
    }
}

#[test]
fn return_address_in_an_outermost_function_needs_no_call() {
    // The runtime of Go gives the first function of a goroutine a return address that follows no call.
    let stack = Stack::from([(SP, 0), (SP + 8, OUTERMOST), (OUTERMOST - 8, 0x9090_9090_9090_9090)]);
    for (found, _) in WITHOUT_ROWS {
        let complete = (vec![0x5010, by_fp(OUTERMOST)], End::Generated);
        assert_eq!(walk_from_code_without_rows(found, SP, &stack), complete);
    }
}

/// `endbr64; bnd jmp *(%rip)`, as in `.plt.sec`.
const JUMP: u64 = 0x0025_fff2_fa1e_0ff3;

#[test]
fn code_without_rows_is_called_through_a_plt() {
    let stack =
        |entry| Stack::from([(SP, 0), (SP + 8, OUTERMOST), (OUTERMOST - 8, call(0x2000, OUTERMOST)), (0x2000, entry)]);
    let plt = Rule { cfa_kind: cfa::PLT, cfa_offset: 11, ..Rule::default() };
    for (entry, rule) in [(0, plt), (JUMP, sp(8))] {
        let mut code = with_code(Lookup::GENERATED);
        code.ranges.push((0x2000..0x3000, Lookup::rule(rule)));
        let found = walk(&after_call(0x5010, SP, SP), &stack(entry), &code);
        assert_eq!(found, (vec![0x5010, by_fp(OUTERMOST)], End::Generated));
    }
}

#[test]
fn missing_table_ends_the_walk_at_the_frame_found() {
    for end in [End::TablePending, End::NoTable] {
        let mut code = with_code(Lookup::GENERATED);
        code.ranges.push((0x2000..0x3000, Lookup::end(end)));
        let stack = Stack::from([(SP, SP + 16), (SP + 8, 0x2010)]);
        assert_eq!(walk(&after_call(0x5010, SP, SP), &stack, &code), (vec![0x5010, by_fp(0x2010)], end));
    }
    let mut code = with_code(Lookup::GENERATED);
    code.ranges.push((0x2000..0x3000, Lookup::end(End::MappingsBusy)));
    let stack = Stack::from([(SP, SP + 16), (SP + 8, 0x2010)]);
    assert_eq!(walk(&after_call(0x5010, SP, SP), &stack, &code), (vec![0x5010], End::MappingsBusy));
}

#[test]
fn replaced_return_address_above_the_frame_pointer_is_restored() {
    const TRAMPOLINE: u64 = 0x7fff_ffff_e000;
    let mut code = with_code(Lookup::GENERATED);
    code.replaced_returns = BTreeMap::from([(SP + 8, OUTERMOST)]);
    let stack = Stack::from([(SP, 0), (SP + 8, TRAMPOLINE), (TRAMPOLINE - 8, 0)]);
    let found = walk(&after_call(0x5010, SP, SP), &stack, &code);
    assert_eq!(found, (vec![0x5010, by_fp(OUTERMOST)], End::Generated));
}

#[test]
fn code_without_rows_needs_a_known_frame_pointer() {
    for (found, end) in WITHOUT_ROWS {
        let mut code = code(Rule { fp_kind: fp::UNDEFINED, ..sp(8) });
        code.ranges.push((0x5000..0x6000, found));
        let result = walk(&after_call(0x1010, SP, SP), &Stack::from([(SP, 0x5010)]), &code);
        assert_eq!(result, (vec![0x1010, 0x5010], end));
    }
}

#[test]
fn frames_of_an_object_without_a_table_are_proven_by_their_callers() {
    let code = with_code(Lookup::end(End::NoTable));
    let found = |stack: &Stack| walk(&after_call(0x5010, SP, SP), stack, &code);
    let frame = |fp: u64, saved: u64, return_address: u64| [(fp, saved), (fp + 8, return_address)];
    let stack = |frames: &[[(u64, u64); 2]]| frames.iter().flatten().copied().collect::<Stack>();
    let (second, third) = (SP + 0x40, SP + 0x80);
    let chain = [frame(SP, second, 0x5020), frame(second, third, 0x5030), frame(third, 0, OUTERMOST)];
    let frames = vec![0x5010, by_fp(0x5020), by_fp(0x5030), by_fp(OUTERMOST)];
    assert_eq!(found(&stack(&chain)), (frames, End::Generated));
    assert_eq!(found(&stack(&chain[..2])), (vec![0x5010, by_fp(0x5020)], End::NoTable));
    assert_eq!(found(&stack(&chain[..1])), (vec![0x5010], End::NoTable));
    // The second frame is below the first one, or its return address follows no call.
    let below = [frame(SP, SP - 0x40, 0x5020), frame(SP - 0x40, 0, OUTERMOST)];
    assert_eq!(found(&stack(&below)), (vec![0x5010], End::NoTable));
    let mut no_call = stack(&chain[..2]);
    no_call.insert(0x5028, 0x9090_9090_9090_9090);
    assert_eq!(found(&no_call), (vec![0x5010], End::NoTable));
}

#[test]
fn frame_with_a_rule_is_proven_by_its_rule() {
    let mut code = with_code(Lookup::end(End::NoTable));
    code.ranges.push((0x2000..0x3000, Lookup::rule(sp(0x20))));
    let found = |stack: &Stack| walk(&after_call(0x5010, SP, SP), stack, &code);
    let mut stack = Stack::from([(SP, 0), (SP + 8, 0x2010)]);
    assert_eq!(found(&stack), (vec![0x5010], End::NoTable));
    stack.insert(SP + 16 + 0x18, OUTERMOST);
    assert_eq!(found(&stack), (vec![0x5010, by_fp(0x2010), OUTERMOST], End::Generated));
    // The caller calls the function with the rule directly. Code without rows could not return there.
    stack.insert(OUTERMOST - 8, call(0x2000, OUTERMOST));
    assert_eq!(found(&stack), (vec![0x5010, by_fp(0x2010), OUTERMOST], End::Generated));
}

#[test]
fn word_that_is_no_return_address_proves_no_frame() {
    let mut code = with_code(Lookup::end(End::NoTable));
    code.ranges.push((0x2000..0x3000, Lookup::rule(sp(0x20))));
    let stack = |word| Stack::from([(SP, 0), (SP + 8, 0x2010), (SP + 16 + 0x18, word), (0x1008, 0), (0xdead_0008, 0)]);
    let found = |stack: &Stack, code: &Code| walk(&after_call(0x5010, SP, SP), stack, code);
    for word in [0, 0x1010, 0xdead_0010] {
        assert_eq!(found(&stack(word), &code), (vec![0x5010], End::NoTable), "{word:#x}");
    }
    code.replaced_returns = BTreeMap::from([(SP + 16 + 0x18, OUTERMOST)]);
    assert_eq!(found(&stack(0xdead_0010), &code), (vec![0x5010, by_fp(0x2010), OUTERMOST], End::Generated));
}

#[test]
fn outermost_function_needs_no_proof() {
    let code = with_code(Lookup::end(End::NoTable));
    let stack = Stack::from([(SP, 0), (SP + 8, OUTERMOST)]);
    assert_eq!(walk(&after_call(0x5010, SP, SP), &stack, &code), (vec![0x5010, by_fp(OUTERMOST)], End::Generated));
}
