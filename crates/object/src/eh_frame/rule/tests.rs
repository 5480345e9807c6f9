use gimli::write::CallFrameInstruction as Instruction;
use gimli::{AArch64, X86_64};
use memtrace_model::VirtOffset;

use super::*;
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, expression, register};
use crate::eh_frame::table::Table;

const RBP: u8 = 0x76; // DW_OP_breg6
const RSP: u8 = 0x77; // DW_OP_breg7
const R10: u8 = 0x7A; // DW_OP_breg10
const DEREF: u8 = 0x06;
const PLUS_CONSTANT: u8 = 0x23; // DW_OP_plus_uconst

fn x86_64(instructions: Vec<Instruction>) -> Rule {
    rule(Machine::X86_64, false, instructions)
}

fn aarch64(instructions: Vec<Instruction>) -> Rule {
    rule(Machine::Aarch64, false, instructions)
}

/// Returns the rule at the start of a function. Its description begins with `instructions`.
fn rule(machine: Machine, signal: bool, instructions: Vec<Instruction>) -> Rule {
    let mut object = Object::new(machine, 64);
    // The state is restored at offset 32, so that the rest of a readable description has the initial rule.
    let (remember, restore) = ((0, Instruction::RememberState), (32, Instruction::RestoreState));
    let instructions = instructions.into_iter().map(|instruction| (0, instruction));
    let instructions = [remember].into_iter().chain(instructions).chain([restore]).collect();
    if signal {
        object.signal_frame(0, 64, instructions);
    } else {
        object.function(0, 64, instructions);
    }
    let table = Table::from_bytes(&object.file(FoundBy::Sections)).unwrap();
    // A signal frame has a rule only with the layout of the kernel.
    assert!(signal || table.rule_at(VirtOffset(TEXT + 32)) != UNTABLED, "the description is broken");
    table.rule_at(VirtOffset(TEXT))
}

fn sp(cfa_offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset, ..Rule::default() }
}

#[test]
fn at_function_entry_the_return_address_is_on_top() {
    assert_eq!(x86_64(vec![]), sp(8));
}

#[test]
fn a_saved_frame_pointer_is_relative_to_the_cfa() {
    let saved = Rule { fp_kind: fp::AT_CFA, fp_offset: -16, ..sp(16) };
    assert_eq!(x86_64(vec![Instruction::CfaOffset(16), Instruction::Offset(X86_64::RBP, -16)]), saved);
    assert_eq!(
        x86_64(vec![Instruction::Cfa(X86_64::RBP, 16), Instruction::Offset(X86_64::RBP, -16)]),
        Rule { cfa_kind: cfa::FP, ..saved },
    );
}

#[test]
fn a_frame_larger_than_64_kib_keeps_its_size() {
    assert_eq!(x86_64(vec![Instruction::CfaOffset(0x0012_3458)]), sp(0x0012_3458));
}

#[test]
fn a_cfa_offset_beyond_32_bits_has_no_rule() {
    let beyond = Instruction::CfaExpression(expression(&[RSP, 0x80, 0x80, 0x80, 0x80, 0x08, DEREF]));
    assert_eq!(x86_64(vec![beyond]), UNTABLED, "2^31");
}

#[test]
fn the_linkers_plt_expression_has_a_rule() {
    for (literal, threshold) in [(0x3B, 11), (0x3A, 10)] {
        let plt = [RSP, 8, 0x80, 0, 0x3F, 0x1A, literal, 0x2A, 0x33, 0x24, 0x22];
        let rule = Rule { cfa_kind: cfa::PLT, cfa_offset: threshold, ..Rule::default() };
        assert_eq!(x86_64(vec![Instruction::CfaExpression(expression(&plt))]), rule);
    }
    for (place, byte) in [(1, 16), (3, 1), (4, 0x3E), (6, 0x42), (7, 0x2B), (8, 0x32), (10, 0x1C)] {
        let mut other = [RSP, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22];
        other[place] = byte;
        assert_eq!(x86_64(vec![Instruction::CfaExpression(expression(&other))]), UNTABLED, "byte {place}");
    }
}

#[test]
fn functions_that_realign_the_stack_dereference_the_cfa() {
    let at_fp = |bytes: &[u8]| x86_64(vec![Instruction::CfaExpression(expression(bytes))]);
    let deref = |cfa_kind, cfa_offset, extra| Rule { cfa_kind, cfa_offset, extra, ..Rule::default() };
    assert_eq!(at_fp(&[RBP, 0x78, DEREF]), deref(cfa::DEREF_FP, -8, 0));
    assert_eq!(at_fp(&[RSP, 0x10, DEREF]), deref(cfa::DEREF_SP, 16, 0));
    assert_eq!(at_fp(&[RSP, 0x10, DEREF, PLUS_CONSTANT, 8]), deref(cfa::DEREF_SP, 16, 8));
    assert_eq!(at_fp(&[R10, 0x10, DEREF]), UNTABLED);
    assert_eq!(at_fp(&[RBP, 0x78]), UNTABLED, "not dereferenced");
    assert_eq!(at_fp(&[RBP, 0x78, 0x94, 4]), UNTABLED, "four bytes only");
    assert_eq!(at_fp(&[RBP, 0x78, DEREF, DEREF]), UNTABLED);
    assert_eq!(at_fp(&[RBP, 0x78, DEREF, PLUS_CONSTANT, 8, DEREF]), UNTABLED);
}

#[test]
fn realigning_functions_save_the_frame_pointer_at_its_target() {
    let saved = |bytes: &[u8]| x86_64(vec![Instruction::Expression(X86_64::RBP, expression(bytes))]);
    assert_eq!(saved(&[RBP, 0]), Rule { fp_kind: fp::AT_FP, ..sp(8) });
    assert_eq!(saved(&[RBP, 0x70]), Rule { fp_kind: fp::AT_FP, fp_offset: -16, ..sp(8) });
    assert_eq!(saved(&[RSP, 0]), Rule { fp_kind: fp::UNDEFINED, ..sp(8) });
}

#[test]
fn a_frame_pointer_without_rule_is_undefined() {
    let unknown = Rule { fp_kind: fp::UNDEFINED, ..sp(8) };
    for instruction in [
        Instruction::Undefined(X86_64::RBP),
        Instruction::Register(X86_64::RBP, X86_64::R9),
        Instruction::ValOffset(X86_64::RBP, -16),
        Instruction::ValExpression(X86_64::RBP, expression(&[RBP, 0])),
    ] {
        assert_eq!(x86_64(vec![instruction]), unknown);
    }
    assert_eq!(x86_64(vec![Instruction::SameValue(X86_64::RBP)]), sp(8));
}

#[test]
fn an_undefined_return_address_ends_the_stack() {
    assert_eq!(x86_64(vec![Instruction::Undefined(X86_64::RA)]), END);
    assert_eq!(x86_64(vec![Instruction::Undefined(X86_64::RA), Instruction::Cfa(X86_64::RBP, 16)]), END);
    assert_eq!(aarch64(vec![Instruction::Undefined(AArch64::X30)]), END);
}

#[test]
fn a_cfa_based_on_another_register_names_it() {
    let on_r10 = Rule { cfa_kind: cfa::REGISTER, cfa_offset: 16, extra: 10, ..Rule::default() };
    assert_eq!(x86_64(vec![Instruction::Cfa(register(10), 16)]), on_r10);
}

#[test]
fn the_return_address_of_vfork_is_in_a_register() {
    let in_rdi = Rule { ra_kind: ra::REGISTER, extra: 5, ..sp(0) };
    assert_eq!(x86_64(vec![Instruction::CfaOffset(0), Instruction::Register(X86_64::RA, X86_64::RDI)]), in_rdi);
    let both = vec![Instruction::Cfa(register(10), 16), Instruction::Register(X86_64::RA, X86_64::RDI)];
    assert_eq!(x86_64(both), UNTABLED, "there is one place for both registers");
}

#[test]
fn a_return_address_at_another_offset_is_cfa_relative() {
    let at_cfa = Rule { ra_kind: ra::AT_CFA, extra: 64, ..sp(8) };
    assert_eq!(x86_64(vec![Instruction::Offset(X86_64::RA, 64)]), at_cfa);
    assert_eq!(x86_64(vec![Instruction::SameValue(X86_64::RA)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::Expression(X86_64::RA, expression(&[RSP, 0]))]), UNTABLED);
}

#[test]
fn code_that_switches_stacks_has_no_rule() {
    assert_eq!(x86_64(vec![Instruction::Register(X86_64::RSP, X86_64::R8)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::Offset(X86_64::RSP, 160)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::ValOffset(X86_64::RSP, 0)]), sp(8));
}

#[test]
fn signal_frames_are_recognized_by_the_kernels_layout() {
    let saved = |register, offset: [u8; 2]| Instruction::Expression(register, expression(&[RSP, offset[0], offset[1]]));
    // The offsets in signed LEB128.
    let [at_112, at_120, at_168] = [[0xF0, 0x00], [0xF8, 0x00], [0xA8, 0x01]];
    let cfa = || Instruction::CfaExpression(expression(&[RSP, 0xA0, 0x01, DEREF]));
    let kernels = || vec![cfa(), saved(X86_64::RBP, at_120), saved(X86_64::RA, at_168)];
    assert_eq!(rule(Machine::X86_64, true, kernels(),), SIGNAL);
    assert_eq!(rule(Machine::X86_64, false, kernels()), UNTABLED, "not marked as one");
    assert_eq!(rule(Machine::X86_64, true, vec![]), UNTABLED, "marked, but another one");
    let others = vec![cfa(), saved(X86_64::RBP, at_112), saved(X86_64::RA, at_168)];
    assert_eq!(rule(Machine::X86_64, true, others), UNTABLED, "the frame pointer elsewhere");
    assert_eq!(rule(Machine::Aarch64, true, vec![Instruction::Cfa(AArch64::X29, 0)]), SIGNAL);
}

#[test]
fn an_aarch64_leaf_returns_by_the_link_register() {
    let leaf = Rule { cfa_kind: cfa::SP, ra_kind: ra::LINK_REGISTER, ..Rule::default() };
    assert_eq!(aarch64(vec![]), leaf);
    assert_eq!(aarch64(vec![Instruction::CfaOffset(32)]), Rule { cfa_offset: 32, ..leaf });
    assert_eq!(aarch64(vec![Instruction::NegateRaState]), leaf, "signed return addresses lie where others do");
}

#[test]
fn aarch64_saves_fp_and_lr_at_any_offset() {
    let saved = |offset| {
        vec![
            Instruction::Cfa(AArch64::X29, 96),
            Instruction::Offset(AArch64::X29, offset),
            Instruction::Offset(AArch64::X30, offset + 8),
        ]
    };
    for offset in [-96, -16] {
        let rule = Rule {
            cfa_kind: cfa::FP,
            fp_kind: fp::AT_CFA,
            ra_kind: ra::AT_CFA,
            reserved: 0,
            cfa_offset: 96,
            fp_offset: offset,
            extra: offset + 8,
        };
        assert_eq!(aarch64(saved(offset)), rule);
    }
}
