//! Each rule is tested with a synthetic function.

use super::*;

const ENTRY: u64 = 0x1000;
const TEST: &[u8] = &[0x48, 0x85, 0xff]; // test %rdi,%rdi
const SUB: &[u8] = &[0x48, 0x83, 0xec, 0x18]; // sub $0x18,%rsp
const PUSH: &[u8] = &[0x53]; // push %rbx
const RET: &[u8] = &[0xc3];

const ARM_NOP: u32 = 0xd503_201f;
const ARM_BTI: u32 = 0xd503_245f; // bti c
const ARM_PACIASP: u32 = 0xd503_233f;
const ARM_CBZ: u32 = 0xb400_0040; // cbz x0, +8
const ARM_RET: u32 = 0xd65f_03c0;

const MALLOC: Signature = Signature::Alloc { size: 0 };
const CALLOC: Signature = Signature::AllocProduct { count: 0, size: 1 };
const REALLOCARRAY: Signature = Signature::ReallocProduct { old: 0, count: 1, size: 2 };
const FREE: Signature = Signature::Free { block: 0 };

/// Returns the choice for an x86-64 function of these instructions.
fn chosen(signature: Signature, instructions: &[&[u8]]) -> (u64, Reason) {
    chosen_among(signature, instructions, &[])
}

fn chosen_among(signature: Signature, instructions: &[&[u8]], symbols: &[u64]) -> (u64, Reason) {
    let bytes = instructions.concat();
    let code = Code { machine: Machine::X86_64, bytes: &bytes, entry: ENTRY };
    let choice = choose(&code, Needs::of_signature(signature), symbols);
    (choice.offset, choice.reason)
}

#[test]
fn an_emulated_entry_is_chosen() {
    assert_eq!(chosen(MALLOC, &[PUSH, RET]), (0, Reason::EntryEmulated));
    // The rest of the function does not matter.
    assert_eq!(chosen(MALLOC, &[PUSH, &[0xff, 0xe0], &[0x06]]), (0, Reason::EntryEmulated));
    assert_eq!(chosen(MALLOC, &[&[0xe8, 0, 0, 0, 0], RET]), (0, Reason::EntryEmulated));
}

#[test]
fn the_first_emulated_instruction_is_chosen() {
    assert_eq!(chosen(FREE, &[TEST, &[0x74, 0x01], PUSH, RET]), (3, Reason::Proven));
    // endbr64; push
    assert_eq!(chosen(MALLOC, &[&[0xf3, 0x0f, 0x1e, 0xfa], PUSH, RET]), (4, Reason::Proven));
    // mov %rsi,%rcx; push
    assert_eq!(chosen(CALLOC, &[&[0x48, 0x89, 0xf1], PUSH, RET]), (3, Reason::Proven));
}

#[test]
fn refused_entry_is_replaced_by_the_next_instruction() {
    let lock: &[u8] = &[0xf0, 0xff, 0x05, 0, 0, 0, 0]; // lock incl 0(%rip)
    // The next instruction is stepped, since a return leaves the function.
    assert_eq!(chosen(FREE, &[lock, TEST, RET]), (7, Reason::EntryRefused));
    // An emulated one is better.
    assert_eq!(chosen(FREE, &[lock, PUSH, RET]), (7, Reason::Proven));
    // lock xadd %rdi,(%rsi) changes the argument.
    assert_eq!(chosen(FREE, &[&[0xf0, 0x48, 0x0f, 0xc1, 0x3e], TEST, RET]), (0, Reason::ChangesArgument(0)));
    // notrack jmp *%rax is refused too, and leaves the function.
    assert_eq!(chosen(FREE, &[&[0x3e, 0xff, 0xe0], TEST]), (0, Reason::Leaves(0)));
}

#[test]
fn only_changes_of_needed_arguments_prevent_the_choice() {
    let mul: &[u8] = &[0x48, 0xf7, 0xe6]; // mul %rsi, which writes %rdx
    let function = [mul, &[0x70, 0x01], PUSH, RET];
    assert_eq!(chosen(CALLOC, &function), (3, Reason::Proven));
    assert_eq!(chosen(REALLOCARRAY, &function), (0, Reason::ChangesArgument(0)));
    // mov %rsi,%rax; xor %edi,%edi; push
    assert_eq!(chosen(MALLOC, &[&[0x48, 0x89, 0xf0], &[0x31, 0xff], PUSH]), (0, Reason::ChangesArgument(3)));
}

#[test]
fn a_lower_stack_pointer_needs_a_hook_without_return() {
    let function = [SUB, TEST, &[0x74, 0x00], RET];
    assert_eq!(chosen(MALLOC, &function), (0, Reason::MovesStack(0)));
    assert_eq!(chosen(FREE, &function), (7, Reason::ProvenLower));
    // add $0x18,%rsp
    assert_eq!(chosen(FREE, &[&[0x48, 0x83, 0xc4, 0x18], PUSH]), (0, Reason::MovesStack(0)));
}

#[test]
fn instructions_that_calls_can_skip_are_not_chosen() {
    assert_eq!(chosen(FREE, &[TEST, RET, PUSH]), (0, Reason::Leaves(3)));
    assert_eq!(chosen(FREE, &[TEST, &[0xe3, 0x01], PUSH, RET]), (0, Reason::Leaves(3))); // jrcxz
    assert_eq!(chosen(FREE, &[TEST, &[0x0f, 0x05], PUSH, RET]), (0, Reason::Leaves(3))); // syscall
    assert_eq!(chosen(FREE, &[TEST, &[0xff, 0x25, 0, 0, 0, 0]]), (0, Reason::Leaves(3))); // jmp *(%rip)
    assert_eq!(chosen(FREE, &[TEST, &[0xff, 0xd0], PUSH, RET]), (0, Reason::Calls(3))); // call *%rax
    assert_eq!(chosen(FREE, &[TEST, &[0xe8, 0, 0, 0, 0], PUSH, RET]), (0, Reason::Calls(3)));
}

#[test]
fn branches_into_the_window_prevent_the_choice() {
    let loops_to = |target: i8| chosen(FREE, &[TEST, PUSH, &[0x75, (target - 6).cast_unsigned()], RET]);
    assert_eq!(loops_to(0), (3, Reason::Proven));
    assert_eq!(loops_to(1), (0, Reason::JumpsBack(4)));
    assert_eq!(loops_to(3), (0, Reason::JumpsBack(4)));
    assert_eq!(loops_to(4), (3, Reason::Proven));
    // A call into the window prevents the choice too, as does a chosen branch into it.
    assert_eq!(chosen(FREE, &[TEST, PUSH, &[0xe8, 0xfa, 0xff, 0xff, 0xff], RET]), (0, Reason::JumpsBack(4)));
    assert_eq!(chosen(FREE, &[TEST, &[0x75, 0xfe], RET]), (0, Reason::JumpsBack(3)));
}

#[test]
fn undecodable_or_indirect_code_prevents_the_choice() {
    assert_eq!(chosen(FREE, &[TEST, PUSH, RET, &[0xff, 0xe0]]), (0, Reason::IndirectJump(5)));
    assert_eq!(chosen(FREE, &[TEST, PUSH, RET, &[0x3e, 0xff, 0xe0]]), (0, Reason::IndirectJump(5)));
    assert_eq!(chosen(FREE, &[TEST, PUSH, RET, &[0x06]]), (0, Reason::Undecodable(5)));
    // The function ends within an instruction.
    assert_eq!(chosen(FREE, &[TEST, PUSH, &[0xe9, 0]]), (0, Reason::Undecodable(4)));
    assert_eq!(chosen(FREE, &[&[0x06], PUSH]), (0, Reason::Undecodable(0)));
    assert_eq!(chosen(FREE, &[]), (0, Reason::Undecodable(0)));
}

#[test]
fn another_symbol_in_the_window_prevents_the_choice() {
    let function = [TEST, PUSH, RET];
    for (symbol, expected) in [(0, Reason::Proven), (1, Reason::OtherSymbol(1)), (3, Reason::OtherSymbol(3))] {
        assert_eq!(chosen_among(FREE, &function, &[ENTRY - 16, ENTRY + symbol]).1, expected);
    }
    assert_eq!(chosen_among(FREE, &function, &[ENTRY + 4]), (3, Reason::Proven));
}

#[test]
fn distant_instructions_are_not_chosen() {
    let long: Vec<&[u8]> = std::iter::repeat_n(TEST, 22).chain([PUSH, RET]).collect();
    assert_eq!(chosen(FREE, &long), (0, Reason::NoneNear));
    assert_eq!(chosen(FREE, &long[1..]), (63, Reason::Proven));
}

#[test]
fn the_window_reaches_from_the_entry_to_the_instruction() {
    let at = |offset| Choice { offset, reason: Reason::Proven }.window(ENTRY);
    assert_eq!(at(3), Some(Window { first: ENTRY + 1, last: ENTRY + 3 }));
    assert_eq!(at(0), None);
}

#[test]
fn the_rules_apply_to_aarch64() {
    let chosen = |signature, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let choice = choose(
            &Code { machine: Machine::Aarch64, bytes: &bytes, entry: ENTRY },
            Needs::of_signature(signature),
            &[],
        );
        (choice.offset, choice.reason)
    };
    // bti c; cbz; nop; ret
    assert_eq!(chosen(FREE, &[ARM_BTI, ARM_CBZ, ARM_NOP, ARM_RET]), (4, Reason::Proven));
    assert_eq!(chosen(MALLOC, &[ARM_BTI, ARM_CBZ, ARM_NOP, ARM_RET]), (4, Reason::Proven));
    // A signed return address cannot be replaced.
    assert_eq!(chosen(MALLOC, &[ARM_PACIASP, ARM_CBZ, ARM_NOP, ARM_RET]), (0, Reason::MovesStack(0)));
    // sub sp, sp, #32; cbz
    assert_eq!(chosen(FREE, &[0xd100_83ff, ARM_CBZ, ARM_NOP, ARM_RET]), (4, Reason::ProvenLower));
    assert_eq!(chosen(MALLOC, &[0xd100_83ff, ARM_CBZ, ARM_NOP, ARM_RET]), (0, Reason::MovesStack(0)));
    // mov x0, x1; cbz
    assert_eq!(chosen(FREE, &[0xaa01_03e0, ARM_CBZ, ARM_NOP, ARM_RET]), (0, Reason::ChangesArgument(0)));
    assert_eq!(chosen(FREE, &[ARM_CBZ, ARM_NOP, ARM_RET]), (0, Reason::EntryEmulated));
    // br x16, as for a jump table.
    assert_eq!(chosen(FREE, &[ARM_BTI, ARM_CBZ, 0xd61f_0200]), (0, Reason::IndirectJump(8)));
}
