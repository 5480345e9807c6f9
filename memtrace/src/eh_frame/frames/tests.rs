use gimli::write::CallFrameInstruction as Instruction;

use super::*;
use crate::eh_frame::synthetic::{Found, Object, TEXT, file, first};
use crate::eh_frame::table::Table;
use crate::elf::Machine;

/// The section of two functions of 64 bytes each, without the zeroes at its end.
fn section() -> Vec<u8> {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 64, first(Instruction::CfaOffset(16)));
    object.function(64, 64, first(Instruction::CfaOffset(24)));
    let mut section = object.eh_frame();
    section.truncate(section.len() - 4);
    section
}

fn table(section: &[u8]) -> Result<Table, Error> {
    Table::from_bytes(&file(Machine::X86_64, 0x100, section, Found::BySections))
}

/// Where the entries of a section begin.
fn entries(section: &[u8]) -> Vec<usize> {
    let mut begins = Vec::new();
    let mut at = 0;
    while let Some(entry) = Entry::at(section, at).unwrap() {
        begins.push(entry.begin);
        at = entry.end;
    }
    begins
}

/// A common entry whose instructions are `length` times nothing, for descriptions without augmentation.
fn common(length: usize) -> Vec<u8> {
    let head = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0C, 7, 8, 0x90, 1];
    let mut entry = u32::try_from(head.len() + length).unwrap().to_le_bytes().to_vec();
    entry.extend_from_slice(&head);
    entry.resize(entry.len() + length, 0);
    entry
}

/// A description of `length` bytes of code at `begin`, placed at `at` of a section whose common entry is at `common`.
fn description(at: usize, common: usize, begin: u64, length: u64, instructions: &[u8]) -> Vec<u8> {
    let mut entry = u32::try_from(20 + instructions.len()).unwrap().to_le_bytes().to_vec();
    entry.extend_from_slice(&u32::try_from(at + 4 - common).unwrap().to_le_bytes());
    entry.extend_from_slice(&begin.to_le_bytes());
    entry.extend_from_slice(&length.to_le_bytes());
    entry.extend_from_slice(instructions);
    entry
}

#[test]
fn zeroes_between_entries_do_not_end_the_section() {
    let section = section();
    let whole = table(&section).unwrap();
    assert_eq!(whole.rows().len(), 3);
    let third = entries(&section)[2];
    let mut padded = section[..third].to_vec();
    padded.extend_from_slice(&[0; 4]);
    // The common entry that follows is its description's own, so that distances stay.
    padded.extend_from_slice(&section[third..]);
    assert_ne!(entries(&padded), entries(&section));
    let shared = entries(&section).len() == 3;
    assert!(shared, "both descriptions share their common entry");
    let distance = third + 4 + 4;
    padded[distance..distance + 4].copy_from_slice(&u32::try_from(third + 8).unwrap().to_le_bytes());
    assert_eq!(table(&padded).unwrap(), whole);
}

#[test]
fn a_section_that_ends_within_an_entry_is_refused() {
    let section = section();
    let begins = entries(&section);
    for length in 1..section.len() {
        let cut = table(&section[..length]);
        assert_eq!(cut.is_ok(), begins.contains(&length), "{length}");
    }
}

#[test]
fn an_entry_too_short_for_its_kind_is_refused() {
    for length in 1..4_u32 {
        assert!(matches!(table(&[length, 0, 0].map(u32::to_le_bytes).concat()), Err(Error::Malformed(_))));
    }
}

#[test]
fn lengths_of_64_bits_are_understood_and_not_believed() {
    let entry = |length: u64| [&[0xFF; 4], length.to_le_bytes().as_slice(), &[0; 4]].concat();
    assert_eq!(Entry::at(&entry(4), 0).unwrap().map(|entry| entry.end), Some(16));
    for length in [3, 5, u64::MAX, u64::MAX - 11] {
        assert!(Entry::at(&entry(length), 0).is_err(), "{length}");
    }
}

#[test]
fn a_description_whose_common_entry_is_none_is_left_out() {
    let mut section = section();
    let second = entries(&section)[1];
    section[second + 4] += 4;
    let table = table(&section).unwrap();
    assert_eq!((table.stats().descriptions, table.stats().unreadable), (2, 1));
    assert_eq!(table.rows().next().map(|(address, _)| address.0), Some(TEXT + 64));
}

#[test]
fn where_a_description_was_left_out_no_gap_is_padding() {
    let common = common(0);
    let first = description(common.len(), 0, TEXT, 16, &[]);
    let unreadable = description(common.len() + first.len(), 4, TEXT + 16, 8, &[]);
    let at = common.len() + first.len() + unreadable.len();
    let last = description(at, 0, TEXT + 24, 16, &[0x0E, 32]);
    let addresses =
        |section: &[u8]| -> Vec<u64> { table(section).unwrap().rows().map(|(address, _)| address.0 - TEXT).collect() };
    assert_eq!(addresses(&[&common[..], &first, &unreadable, &last].concat()), [0, 16, 24, 40]);
    let readable = description(common.len() + first.len(), 0, 0, 8, &[]);
    assert_eq!(addresses(&[&common[..], &first, &readable, &last].concat()), [0, 24, 40]);
}

#[test]
fn a_common_entry_that_a_million_descriptions_run_is_refused() {
    let mut section = common(100_000);
    for _ in 0..1000 {
        let next = description(section.len(), 0, TEXT, 1, &[]);
        section.extend_from_slice(&next);
    }
    assert!(matches!(table(&section), Err(Error::TooMuch("call frame instructions"))));
}

#[test]
fn more_rows_than_code_are_refused() {
    let mut section = common(0);
    // Advance by one, and another offset of the CFA: a row a byte.
    let changes: Vec<u8> = (0..0x100_u32).flat_map(|row| [0x41, 0x0E, if row % 2 == 0 { 16 } else { 24 }]).collect();
    for _ in 0..4 {
        let next = description(section.len(), 0, TEXT, 0x100, &changes);
        section.extend_from_slice(&next);
    }
    assert_eq!(table(&section).unwrap().rows().len(), 0x101);
    for _ in 0..2 {
        let next = description(section.len(), 0, TEXT, 0x100, &changes);
        section.extend_from_slice(&next);
    }
    assert!(matches!(table(&section), Err(Error::TooMuch("rows for the code"))));
}

#[test]
fn a_description_at_the_end_of_all_addresses_describes_nothing() {
    let common = common(0);
    let section = [&common[..], &description(common.len(), 0, u64::MAX - 1, u64::MAX, &[0x41, 0x0E, 16])].concat();
    let table = table(&section).unwrap();
    assert_eq!((table.rows().len(), table.pages()), (0, 0));
    assert_eq!(table.stats().outside + table.stats().unreadable, 1);
}
