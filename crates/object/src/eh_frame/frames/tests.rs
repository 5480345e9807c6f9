use gimli::write::CallFrameInstruction as Instruction;

use super::*;
use crate::eh_frame::entry::{EH_FRAME_COMMON, Entry};
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, file, first};
use crate::eh_frame::table::Table;
use crate::elf::Machine;

/// Returns the section of two functions of 64 bytes each, without the terminator.
fn section() -> Vec<u8> {
    let mut object = Object::new(Machine::X86_64, 0x100);
    object.function(0, 64, first(Instruction::CfaOffset(16)));
    object.function(64, 64, first(Instruction::CfaOffset(24)));
    let mut section = object.eh_frame();
    section.truncate(section.len() - 4);
    section
}

fn table(section: &[u8]) -> Result<Table, Error> {
    Table::from_bytes(&file(Machine::X86_64, 0x100, section, FoundBy::Sections))
}

/// Returns the offsets of the entries of a section.
fn entries(section: &[u8]) -> Vec<usize> {
    let mut begins = Vec::new();
    let mut at = 0;
    while let Some(entry) = Entry::parse(section, at, EH_FRAME_COMMON).unwrap() {
        begins.push(entry.begin);
        at = entry.end;
    }
    begins
}

/// Returns a common entry with `length` `DW_CFA_nop` instructions, for descriptions without augmentation.
fn common(length: usize) -> Vec<u8> {
    let head = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0C, 7, 8, 0x90, 1];
    let mut entry = u32::try_from(head.len() + length).unwrap().to_le_bytes().to_vec();
    entry.extend_from_slice(&head);
    entry.resize(entry.len() + length, 0);
    entry
}

/// Returns a description of `length` bytes of code at `begin`. Its offset in the section is `at`, and `common` is the
/// offset of its common entry.
fn description(at: usize, common: usize, begin: u64, length: u64, instructions: &[u8]) -> Vec<u8> {
    let mut entry = u32::try_from(20 + instructions.len()).unwrap().to_le_bytes().to_vec();
    entry.extend_from_slice(&u32::try_from(at + 4 - common).unwrap().to_le_bytes());
    entry.extend_from_slice(&begin.to_le_bytes());
    entry.extend_from_slice(&length.to_le_bytes());
    entry.extend_from_slice(instructions);
    entry
}

#[test]
fn zero_lengths_between_entries_do_not_end_the_section() {
    let section = section();
    let whole = table(&section).unwrap();
    assert_eq!(whole.rows().len(), 3);
    let third = entries(&section)[2];
    let mut padded = section[..third].to_vec();
    padded.extend_from_slice(&[0; 4]);
    padded.extend_from_slice(&section[third..]);
    assert_ne!(entries(&padded), entries(&section));
    let shared = entries(&section).len() == 3;
    assert!(shared, "both descriptions share their common entry");
    let distance = third + 4 + 4;
    padded[distance..distance + 4].copy_from_slice(&u32::try_from(third + 8).unwrap().to_le_bytes());
    assert_eq!(table(&padded).unwrap(), whole);
}

#[test]
fn a_section_that_ends_within_an_entry_is_rejected() {
    let section = section();
    let begins = entries(&section);
    for length in 1..section.len() {
        let cut = table(&section[..length]);
        assert_eq!(cut.is_ok(), begins.contains(&length), "{length}");
    }
}

#[test]
fn an_entry_too_short_for_its_kind_is_rejected() {
    for length in 1..4_u32 {
        assert!(matches!(table(&[length, 0, 0].map(u32::to_le_bytes).concat()), Err(Error::Malformed(_))));
    }
}

#[test]
fn lengths_of_64_bits_are_parsed_and_checked() {
    let entry = |length: u64| [&[0xFF; 4], length.to_le_bytes().as_slice(), &[0; 4]].concat();
    assert_eq!(Entry::parse(&entry(4), 0, EH_FRAME_COMMON).unwrap().map(|entry| entry.end), Some(16));
    for length in [3, 5, u64::MAX, u64::MAX - 11] {
        assert!(Entry::parse(&entry(length), 0, EH_FRAME_COMMON).is_err(), "{length}");
    }
}

#[test]
fn a_description_without_common_entry_is_skipped() {
    let mut section = section();
    let second = entries(&section)[1];
    section[second + 4] += 4;
    let table = table(&section).unwrap();
    assert_eq!(table.rows().next().map(|(address, _)| address.0), Some(TEXT + 64));
}

#[test]
fn unreadable_descriptions_keep_every_gap() {
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
fn repeated_execution_of_a_large_common_entry_is_rejected() {
    let mut section = common(100_000);
    for _ in 0..1000 {
        let next = description(section.len(), 0, TEXT, 1, &[]);
        section.extend_from_slice(&next);
    }
    assert!(matches!(table(&section), Err(Error::TooMuch("call frame instructions"))));
}

#[test]
fn more_rows_than_bytes_of_code_are_rejected() {
    let mut section = common(0);
    // Advance by one byte and change the CFA offset: one row for each byte.
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
fn a_description_at_the_last_address_covers_no_code() {
    let common = common(0);
    let section = [&common[..], &description(common.len(), 0, u64::MAX - 1, u64::MAX, &[0x41, 0x0E, 16])].concat();
    let table = table(&section).unwrap();
    assert_eq!((table.rows().len(), table.pages()), (0, 0));
}
