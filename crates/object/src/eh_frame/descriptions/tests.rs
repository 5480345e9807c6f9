use std::fs;

use gimli::X86_64;
use gimli::write::CallFrameInstruction as Instruction;

use super::*;
use crate::eh_frame::named_code::NamedCode;
use crate::eh_frame::rule::END;
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, excessive_debug_frame, expression, first};
use crate::eh_frame::table::Table;
use crate::elf::Machine;

/// Asserts that the pages made from the descriptions of `file` equal the pages of its table.
fn assert_pages_are_those_of_the_table(file: &[u8]) {
    assert_pages_are_those_of_the_table_of(ObjectContents::find(file).unwrap());
}

fn assert_pages_are_those_of_the_table_of(contents: ObjectContents) {
    let table = Table::build(&contents).unwrap();
    let mut descriptions = Descriptions::find(Arc::new(contents)).unwrap();
    assert_eq!((descriptions.pages(), descriptions.origin()), (table.pages(), table.origin()));
    assert_eq!(descriptions.code(), table.code());
    let origin = table.origin().0;
    let rows: Vec<_> = table.rows().collect();
    for number in 0..table.pages() {
        let begin = u64::from(number) << PAGE_BITS;
        let PageRows { before, rows: page } = descriptions.page(number).unwrap();
        let first = rows.partition_point(|(address, _)| address.0 - origin < begin);
        let expected_before = first.checked_sub(1).map_or(Rule::default(), |last| rows[last].1);
        assert_eq!(before, expected_before, "page {number}");
        // The first row of a page may repeat the rule before it.
        let page: Vec<_> = page.into_iter().skip_while(|(_, rule)| *rule == before).collect();
        let expected = rows[first..].iter().map(|(address, rule)| ((address.0 - origin) as u32, *rule));
        let expected: Vec<_> =
            expected.take_while(|(offset, _)| u64::from(*offset) < begin + (1 << PAGE_BITS)).collect();
        assert_eq!(page, expected, "page {number}");
    }
}

fn function(object: &mut Object, begin: u32, length: u32, size: i32) {
    object.function(begin, length, first(Instruction::CfaOffset(size)));
}

#[test]
fn gaps_and_overlaps_at_page_borders_are_those_of_the_table() {
    let mut object = Object::new(Machine::X86_64, 0x8000);
    // A function of several pages, a function that overlaps it, gaps of several pages, and padding across a page
    // border.
    object.function(
        0x10,
        0x2800,
        (0..0x50_u32).map(|row| (row * 0x80, Instruction::CfaOffset(16 + 8 * row.cast_signed()))).collect(),
    );
    function(&mut object, 0x1ff0, 0x20, 8);
    function(&mut object, 0x1ff0, 0x10, 24);
    function(&mut object, 0x5000, 0xff8, 32);
    function(&mut object, 0x6004, 0x10, 40);
    function(&mut object, 0x6ff8, 8, 48);
    object.signal_frame(0x7000, 0x10, first(Instruction::CfaExpression(expression(&[0x77, 0xA0, 0x01, 0x06]))));
    object.function(
        0x7800,
        0x40,
        vec![(0x10, Instruction::Offset(X86_64::RBP, -16)), (0x20, Instruction::RestoreState)],
    );
    assert_pages_are_those_of_the_table(&object.file(FoundBy::Sections));
    assert_pages_are_those_of_the_table(&object.file(FoundBy::Index));
}

#[test]
fn entry_point_ends_stacks_in_all_pages_of_its_gap() {
    for entry in [0x1000_u64, 0x1800, 0x2000, 0x3ff0, 0x5000, 0x6010, 0x7800] {
        let mut object = Object::new(Machine::X86_64, 0x8000);
        function(&mut object, 0x1000, 0x10, 16);
        function(&mut object, 0x5000, 0x10, 24);
        let mut file = object.file(FoundBy::Sections);
        // `e_entry`
        file[24..32].copy_from_slice(&entry.to_le_bytes());
        assert_pages_are_those_of_the_table(&file);
    }
}

#[test]
fn named_functions_fill_the_same_addresses_of_all_pages() {
    let mut object = Object::new(Machine::X86_64, 0x8000);
    function(&mut object, 0x1000, 0x10, 16);
    function(&mut object, 0x5000, 0x10, 24);
    let contents = ObjectContents::find(object.file(FoundBy::Sections).as_slice()).unwrap();
    let ranges = [(0, 0x10), (0xff0, 0x1020), (0x1010, 0x4000), (0x1800, 0x5800), (0x4ff0, 0x5000), (0x7ff0, 0x8000)];
    for (begin, end) in ranges {
        let mut contents = contents.clone();
        let named = |begin: u64, end: u64| NamedCode { begin: TEXT + begin, end: TEXT + end, rule: END };
        contents.named = vec![named(begin, end), named(0x6000, 0x6004)];
        assert_pages_are_those_of_the_table_of(contents);
    }
}

#[test]
fn both_sections_give_the_same_pages_as_the_table() {
    let mut object = Object::new(Machine::X86_64, 0x8000);
    function(&mut object, 0x1000, 0x1800, 16);
    function(&mut object, 0x5000, 0x10, 24);
    let mut contents = ObjectContents::find(object.file(FoundBy::Sections).as_slice()).unwrap();
    let mut debug = Object::new(Machine::X86_64, 0x8000);
    for (begin, length) in [(0xff0, 0x20), (0x1800, 0x10), (0x2800, 0x2800), (0x5010, 0x10), (0x7000, 0x1000)] {
        function(&mut debug, begin, length, 32);
    }
    contents.debug_frame = debug.debug_frame();
    assert_pages_are_those_of_the_table_of(contents);
}

#[test]
fn pages_leave_out_a_debug_frame_with_an_error() {
    let mut object = Object::new(Machine::X86_64, 0x8000);
    function(&mut object, 0x1000, 0x10, 16);
    function(&mut object, 0x5000, 0x10, 24);
    let mut contents = ObjectContents::find(object.file(FoundBy::Sections).as_slice()).unwrap();
    contents.debug_frame = excessive_debug_frame(TEXT + 0x3000);
    assert_pages_are_those_of_the_table_of(contents.clone());
    assert!(Descriptions::find(Arc::new(contents.clone())).is_ok_and(|found| found.list.len() == 2));
    contents.eh_frame.clear();
    assert!(matches!(Descriptions::find(Arc::new(contents)), Err(Error::TooMuch(_))));
}

#[test]
fn pages_of_real_objects_are_those_of_their_tables() {
    assert_pages_are_those_of_the_table(&fs::read("/bin/sh").unwrap());
    assert_pages_are_those_of_the_table(&fs::read(std::env::current_exe().unwrap()).unwrap());
}

#[test]
fn rows_made_from_descriptions_are_bounded() {
    let mut object = Object::new(Machine::X86_64, 0x3000);
    let rows = (0..0x3000).map(|row| (row, Instruction::CfaOffset(if row % 2 == 0 { 16 } else { 24 })));
    object.function(0, 0x3000, rows.collect());
    let file = object.file(FoundBy::Sections);
    let mut descriptions = Descriptions::find(Arc::new(ObjectContents::find(file.as_slice()).unwrap())).unwrap();
    // Each page converts the whole function, which has as many rows as its object may have.
    assert!(descriptions.page(0).is_some());
    assert_eq!([1, 2].map(|number| descriptions.page(number)), [None, None]);
}
