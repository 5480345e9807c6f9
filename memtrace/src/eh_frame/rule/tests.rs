use gimli::write::CallFrameInstruction as Instruction;
use gimli::{AArch64, X86_64};

use super::*;
use crate::eh_frame::synthetic::{Found, Object, TEXT, expression, register};
use crate::eh_frame::table::Table;
use crate::model::VirtOffset;

const RBP: u8 = 0x76; // DW_OP_breg6
const RSP: u8 = 0x77; // DW_OP_breg7
const R10: u8 = 0x7A; // DW_OP_breg10
const DEREF: u8 = 0x06;
const PLUS_CONSTANT: u8 = 0x23; // DW_OP_plus_uconst

fn x86_64(instructions: Vec<Instruction>) -> Rule {
    of(Machine::X86_64, false, instructions)
}

fn aarch64(instructions: Vec<Instruction>) -> Rule {
    of(Machine::Aarch64, false, instructions)
}

/// The rule of a function whose description begins with `instructions`.
fn of(machine: Machine, signal: bool, instructions: Vec<Instruction>) -> Rule {
    let mut object = Object::new(machine, 64);
    let instructions = instructions.into_iter().map(|instruction| (0, instruction)).collect();
    if signal {
        object.signal_frame(0, 64, instructions);
    } else {
        object.function(0, 64, instructions);
    }
    let table = Table::from_bytes(&object.file(Found::BySections)).unwrap();
    assert_eq!(table.stats().broken + table.stats().unreadable, 0);
    let rule = table.rule_at(VirtOffset(TEXT));
    assert_eq!(table.stats().untabled_rows, u64::from(rule.cfa_kind == cfa::UNTABLED));
    assert_eq!(table.stats().unknown_fp_rows, u64::from(rule.fp_kind == fp::UNDEFINED));
    rule
}

fn sp(cfa_offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset, ..Rule::default() }
}

#[test]
fn a_function_that_has_pushed_nothing_has_its_return_address_on_top() {
    assert_eq!(x86_64(vec![]), sp(8));
}

#[test]
fn a_saved_frame_pointer_is_found_from_the_cfa() {
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
fn a_cfa_farther_away_than_a_rule_can_say_has_none() {
    let beyond = Instruction::CfaExpression(expression(&[RSP, 0x80, 0x80, 0x80, 0x80, 0x08, DEREF]));
    assert_eq!(x86_64(vec![beyond]), UNTABLED, "2^31");
}

#[test]
fn what_linkers_write_for_the_plt_has_a_rule_with_its_threshold() {
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
fn functions_that_realign_their_stack_are_found_through_memory() {
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
fn their_callers_frame_pointer_is_where_their_own_points() {
    let saved = |bytes: &[u8]| x86_64(vec![Instruction::Expression(X86_64::RBP, expression(bytes))]);
    assert_eq!(saved(&[RBP, 0]), Rule { fp_kind: fp::AT_FP, ..sp(8) });
    assert_eq!(saved(&[RBP, 0x70]), Rule { fp_kind: fp::AT_FP, fp_offset: -16, ..sp(8) });
    assert_eq!(saved(&[RSP, 0]), Rule { fp_kind: fp::UNDEFINED, ..sp(8) });
}

#[test]
fn a_frame_pointer_that_no_rule_finds_is_not_known() {
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
fn an_undefined_return_address_is_the_end_of_the_stack() {
    assert_eq!(x86_64(vec![Instruction::Undefined(X86_64::RA)]), END);
    assert_eq!(x86_64(vec![Instruction::Undefined(X86_64::RA), Instruction::Cfa(X86_64::RBP, 16)]), END);
    assert_eq!(aarch64(vec![Instruction::Undefined(AArch64::X30)]), END);
}

#[test]
fn a_cfa_on_another_register_says_which() {
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
fn a_return_address_elsewhere_is_found_from_the_cfa() {
    let at_cfa = Rule { ra_kind: ra::AT_CFA, extra: 64, ..sp(8) };
    assert_eq!(x86_64(vec![Instruction::Offset(X86_64::RA, 64)]), at_cfa);
    assert_eq!(x86_64(vec![Instruction::SameValue(X86_64::RA)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::Expression(X86_64::RA, expression(&[RSP, 0]))]), UNTABLED);
}

#[test]
fn code_that_changes_stacks_has_no_rule() {
    assert_eq!(x86_64(vec![Instruction::Register(X86_64::RSP, X86_64::R8)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::Offset(X86_64::RSP, 160)]), UNTABLED);
    assert_eq!(x86_64(vec![Instruction::ValOffset(X86_64::RSP, 0)]), sp(8));
}

#[test]
fn a_signal_frame_is_known_by_where_the_kernel_puts_registers() {
    let saved = |register, offset: [u8; 2]| Instruction::Expression(register, expression(&[RSP, offset[0], offset[1]]));
    // In signed LEB128.
    let [at_112, at_120, at_168] = [[0xF0, 0x00], [0xF8, 0x00], [0xA8, 0x01]];
    let cfa = || Instruction::CfaExpression(expression(&[RSP, 0xA0, 0x01, DEREF]));
    let kernels = || vec![cfa(), saved(X86_64::RBP, at_120), saved(X86_64::RA, at_168)];
    assert_eq!(of(Machine::X86_64, true, kernels(),), SIGNAL);
    assert_eq!(of(Machine::X86_64, false, kernels()), UNTABLED, "not marked as one");
    assert_eq!(of(Machine::X86_64, true, vec![]), UNTABLED, "marked, but another one");
    let others = vec![cfa(), saved(X86_64::RBP, at_112), saved(X86_64::RA, at_168)];
    assert_eq!(of(Machine::X86_64, true, others), UNTABLED, "the frame pointer elsewhere");
    assert_eq!(of(Machine::Aarch64, true, vec![Instruction::Cfa(AArch64::X29, 0)]), SIGNAL);
}

#[test]
fn an_aarch64_leaf_has_its_return_address_in_the_link_register() {
    let leaf = Rule { cfa_kind: cfa::SP, ra_kind: ra::LINK_REGISTER, ..Rule::default() };
    assert_eq!(aarch64(vec![]), leaf);
    assert_eq!(aarch64(vec![Instruction::CfaOffset(32)]), Rule { cfa_offset: 32, ..leaf });
    assert_eq!(aarch64(vec![Instruction::NegateRaState]), leaf, "signed return addresses lie where others do");
}

#[test]
fn an_aarch64_function_saves_frame_pointer_and_link_register_anywhere() {
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
