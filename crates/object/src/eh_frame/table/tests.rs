use gimli::X86_64;
use gimli::write::CallFrameInstruction as Instruction;
use memtrace_common::unwind::{cfa, ra};

use super::*;
use crate::eh_frame::named_code::NamedCode;
use crate::eh_frame::rule::END;
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, excessive_debug_frame, expression, first};

fn sp(cfa_offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset, ra_kind: ra::AT_CFA_MINUS_8, ..Rule::default() }
}

fn table(object: &Object) -> Table {
    Table::from_bytes(&object.file(FoundBy::Sections)).unwrap()
}

/// Returns the rows: offset from the start of the code, and CFA offset, or `None` for a row without information.
fn rows(table: &Table) -> Vec<(u64, Option<i32>)> {
    let known = |rule: Rule| (rule != Rule::default()).then_some(rule.cfa_offset);
    table.rows().map(|(address, rule)| (address.0 - TEXT, known(rule))).collect()
}

/// Returns an object with these functions: begin, length, and frame size in bytes.
fn functions(functions: &[(u32, u32, i32)]) -> Object {
    let mut object = Object::new(Machine::X86_64, 0x3000);
    for &(begin, length, size) in functions {
        object.function(begin, length, first(Instruction::CfaOffset(size)));
    }
    object
}

#[test]
fn a_function_has_a_row_for_every_change() {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0x20, 0x40, vec![(1, Instruction::CfaOffset(16)), (0x3f, Instruction::CfaOffset(8))]);
    let table = table(&object);
    assert_eq!(rows(&table), [(0x20, Some(8)), (0x21, Some(16)), (0x5f, Some(8)), (0x60, None)]);
    let at = |offset: u64| table.rule_at(VirtOffset(TEXT + offset));
    assert_eq!([at(0x1f), at(0x20), at(0x21)], [Rule::default(), sp(8), sp(16)]);
    assert_eq!([at(0x5e), at(0x5f), at(0x60)], [sp(16), sp(8), Rule::default()]);
    assert_eq!(table.rule_at(VirtOffset(0)), Rule::default());
    assert_eq!(table.rule_at(VirtOffset(u64::MAX)), Rule::default());
}

#[test]
fn equal_consecutive_rows_are_merged() {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 0x10, vec![(4, Instruction::CfaOffset(8)), (8, Instruction::ArgsSize(16))]);
    object.function(0x10, 0x10, vec![]);
    assert_eq!(rows(&table(&object)), [(0, Some(8)), (0x20, None)]);
}

#[test]
fn a_gap_shorter_than_16_bytes_is_padding() {
    let object = functions(&[(0, 0x11, 8), (0x20, 0x10, 24), (0x40, 0x10, 32)]);
    assert_eq!(rows(&table(&object)), [(0, Some(8)), (0x20, Some(24)), (0x30, None), (0x40, Some(32)), (0x50, None)]);
}

#[test]
fn descriptions_are_sorted_by_address() {
    let object = functions(&[(0x2000, 0x10, 24), (0, 0x10, 8), (0x1000, 0x10, 16)]);
    let expected = [(0, Some(8)), (0x10, None), (0x1000, Some(16)), (0x1010, None), (0x2000, Some(24)), (0x2010, None)];
    assert_eq!(rows(&table(&object)), expected);
}

#[test]
fn of_overlapping_descriptions_the_last_start_applies() {
    let object = functions(&[(0, 0x100, 8), (0x40, 0x40, 16)]);
    assert_eq!(rows(&table(&object)), [(0, Some(8)), (0x40, Some(16)), (0x80, None)]);
}

#[test]
fn of_descriptions_with_equal_start_the_first_applies() {
    let object = functions(&[(0, 0x40, 8), (0, 0x80, 16)]);
    assert_eq!(rows(&table(&object)), [(0, Some(8)), (0x40, None)]);
}

/// The last instruction of a function may be a call that does not return. Its return address is the first byte of the
/// next function. So the lookup uses the byte before the return address.
#[test]
fn a_return_address_after_a_function_is_looked_up_in_it() {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 0x20, vec![(1, Instruction::CfaOffset(64))]);
    object.function(0x20, 0x20, vec![]);
    let table = table(&object);
    let return_address = TEXT + 0x20;
    assert_eq!(table.rule_at(VirtOffset(return_address - 1)), sp(64));
    assert_eq!(table.rule_at(VirtOffset(return_address)), sp(8));
}

#[test]
fn a_signal_frame_is_found_by_the_byte_before_it() {
    let saved =
        |register, offset: [u8; 2]| (0, Instruction::Expression(register, expression(&[0x77, offset[0], offset[1]])));
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 0x20, vec![]);
    let cfa = Instruction::CfaExpression(expression(&[0x77, 0xA0, 0x01, 0x06]));
    let registers = [saved(X86_64::RBP, [0xF8, 0x00]), saved(X86_64::RA, [0xA8, 0x01])];
    object.signal_frame(0x20, 0x10, [first(cfa), registers.to_vec()].concat());
    let table = table(&object);
    let kind_at = |offset: u64| table.rule_at(VirtOffset(TEXT + offset)).cfa_kind;
    assert_eq!(
        [0x1e, 0x1f, 0x20, 0x2f, 0x30].map(kind_at),
        [cfa::SP, cfa::SIGNAL, cfa::SIGNAL, cfa::SIGNAL, cfa::NONE]
    );
}

#[test]
fn descriptions_are_clipped_to_the_code() {
    let object = functions(&[(0x2ff0, 0x100, 8), (0x3000, 0x100, 16)]);
    let table = table(&object);
    assert_eq!(rows(&table), [(0x2ff0, Some(8)), (0x3000, None)]);
}

#[test]
fn a_truncated_description_is_untabled_from_there_on() {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 0x40, vec![(0x10, Instruction::CfaOffset(16)), (0x20, Instruction::RestoreState)]);
    let table = table(&object);
    let kind_at = |offset: u64| table.rule_at(VirtOffset(TEXT + offset)).cfa_kind;
    assert_eq!([0, 0x1f, 0x20, 0x3f, 0x40].map(kind_at), [cfa::SP, cfa::SP, cfa::UNTABLED, cfa::UNTABLED, cfa::NONE]);
}

#[test]
fn named_functions_have_their_rule_where_no_description_applies() {
    let file = functions(&[(0x100, 0x40, 8), (0x200, 0x40, 16)]).file(FoundBy::Sections);
    let mut contents = ObjectContents::find(file.as_slice()).unwrap();
    let named = |begin: u64, end: u64| NamedCode { begin: TEXT + begin, end: TEXT + end, rule: END };
    contents.named = vec![named(0x120, 0x180), named(0x1f0, 0x210), named(0x230, 0x238)];
    let table = Table::build(&contents).unwrap();
    let kind = |offset: u64| table.rule_at(VirtOffset(TEXT + offset)).cfa_kind;
    assert_eq!([0x13f, 0x140, 0x17f, 0x180].map(kind), [cfa::SP, cfa::END, cfa::END, cfa::NONE]);
    assert_eq!([0x1ef, 0x1f0, 0x1ff, 0x200].map(kind), [cfa::NONE, cfa::END, cfa::END, cfa::SP]);
    assert_eq!([0x20f, 0x234, 0x240].map(kind), [cfa::SP, cfa::SP, cfa::NONE]);
}

#[test]
fn debug_frame_describes_code_that_eh_frame_does_not_cover() {
    let file = functions(&[(0x100, 0x40, 8), (0x200, 0x40, 16)]).file(FoundBy::Sections);
    let mut contents = ObjectContents::find(file.as_slice()).unwrap();
    contents.debug_frame = functions(&[(0x100, 0x40, 24), (0x140, 0xc0, 32), (0x230, 0x20, 40)]).debug_frame();
    let expected = [(0x100, Some(8)), (0x140, Some(32)), (0x200, Some(16)), (0x240, None)];
    assert_eq!(rows(&Table::build(&contents).unwrap()), expected);
    contents.eh_frame.clear();
    let expected = [(0x100, Some(24)), (0x140, Some(32)), (0x200, None), (0x230, Some(40)), (0x250, None)];
    assert_eq!(rows(&Table::build(&contents).unwrap()), expected);
}

#[test]
fn debug_frame_with_an_error_costs_no_rows_of_eh_frame() {
    let file = functions(&[(0x100, 0x40, 8), (0x200, 0x40, 16)]).file(FoundBy::Sections);
    let mut contents = ObjectContents::find(file.as_slice()).unwrap();
    let expected = [(0x100, Some(8)), (0x140, None), (0x200, Some(16)), (0x240, None)];
    // Too many instructions, or more rows than bytes of code.
    let many = vec![(0x300, 0x10, 24); 14_000];
    for debug_frame in [excessive_debug_frame(TEXT + 0x300), functions(&many).debug_frame()] {
        contents.debug_frame = debug_frame;
        assert_eq!(rows(&Table::build(&contents).unwrap()), expected);
    }
    contents.eh_frame.clear();
    assert!(matches!(Table::build(&contents), Err(Error::TooMuch(_))));
}
