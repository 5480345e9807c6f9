use std::fs;

use gimli::write::CallFrameInstruction as Instruction;
use harness::Scratch;
use memtrace_common::unwind::cfa;

use super::*;
use crate::eh_frame::synthetic::{FoundBy, Object, TEXT, first};
use crate::eh_frame::table::Table;
use crate::elf::symbol_table;

const BOTH: [FoundBy; 2] = [FoundBy::Sections, FoundBy::Index];

fn object(machine: Machine) -> Object {
    let mut object = Object::new(machine, 0x2000);
    for function in 0..4 {
        object.function(function * 0x400, 0x400, first(Instruction::CfaOffset(i32::try_from(function).unwrap() * 16)));
    }
    object
}

fn file(found: FoundBy) -> Vec<u8> {
    object(Machine::X86_64).file(found)
}

/// Returns the file with `bytes` at offset `at`.
fn with(mut file: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn error(file: &[u8]) -> Error {
    Table::from_bytes(file).unwrap_err()
}

// Offsets in the file header and in the first program header (elf(5)).
const CLASS: usize = 4;
const TYPE: usize = 16;
const MACHINE: usize = 18;
const PHOFF: usize = 32;
const PHENTSIZE: usize = 54;
const PHNUM: usize = 56;
const FIRST: usize = 64;
const FLAGS: usize = 4;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const FILE_SIZE: usize = 32;

#[test]
fn a_file_without_section_headers_has_the_same_table() {
    let [by_sections, by_index] = BOTH.map(|found| Table::from_bytes(&file(found)).unwrap());
    assert_eq!(by_sections, by_index);
    assert_eq!(by_index.rows().len(), 5);
}

#[test]
fn bytes_after_the_last_indexed_entry_are_not_read() {
    let object = object(Machine::X86_64);
    let mut section = object.eh_frame();
    let expected = Table::from_bytes(&object.file(FoundBy::Index)).unwrap();
    // Without the terminator, the bytes after the section are read as an entry, which reaches beyond the file.
    let end = section.len() - 4;
    section.truncate(end);
    let index_sees = crate::eh_frame::synthetic::file(Machine::X86_64, 0x2000, &section, FoundBy::Index);
    let at = index_sees.len() - index_sees.iter().rev().position(|&byte| byte != 0).unwrap();
    assert!(at > end);
    assert_eq!(Table::from_bytes(&index_sees).unwrap(), expected);
    section.extend_from_slice(&[0xFF; 4]);
    let followed = crate::eh_frame::synthetic::file(Machine::X86_64, 0x2000, &section, FoundBy::Index);
    assert_eq!(Table::from_bytes(&followed).unwrap(), expected);
    let refused = crate::eh_frame::synthetic::file(Machine::X86_64, 0x2000, &section, FoundBy::Sections);
    assert!(matches!(error(&refused), Error::Malformed(_)));
}

#[test]
fn wrong_section_headers_do_not_hide_the_index() {
    let mut file = file(FoundBy::Index);
    let sections = (file.len() as u64).next_multiple_of(8);
    file.resize(usize::try_from(sections).unwrap() + 64 * 3, 0xEE);
    let names = file.windows(11).position(|bytes| bytes == b"\0.eh_frame\0").unwrap() as u64;
    let section = usize::try_from(sections).unwrap();
    // The first section is an .eh_frame that is longer than the file. The last section has the names.
    let file = with(file, 40, &sections.to_le_bytes());
    let file = with(file, 58, &[64, 0, 3, 0, 2, 0]);
    let file = with(file, section, &1_u32.to_le_bytes());
    let file = with(file, section + 4, &1_u32.to_le_bytes());
    let file = with(file, section + 8, &2_u64.to_le_bytes());
    let file = with(file, section + 2 * 64 + 24, &names.to_le_bytes());
    assert_eq!(Table::from_bytes(&file).unwrap().rows().len(), 5);
}

#[test]
fn aarch64_files_are_supported() {
    for found in BOTH {
        let table = Table::from_bytes(&object(Machine::Aarch64).file(found)).unwrap();
        assert_eq!((table.machine(), table.rows().len()), (Machine::Aarch64, 5));
    }
}

#[test]
fn unsupported_files_are_named() {
    assert!(matches!(error(b""), Error::NotLoadable("not an ELF file")));
    assert!(matches!(error(&[0; 4096]), Error::NotLoadable("not an ELF file")));
    let file = file(FoundBy::Sections);
    assert!(matches!(error(&with(file.clone(), CLASS, &[1])), Error::Foreign("32 bits")));
    assert!(matches!(error(&with(file.clone(), CLASS + 1, &[2])), Error::Foreign("big-endian")));
    assert!(matches!(error(&with(file.clone(), TYPE, &[1])), Error::NotLoadable("not linked")));
    assert!(matches!(error(&with(file.clone(), MACHINE, &[243])), Error::Foreign(_)));
    assert!(matches!(error(&with(file.clone(), FIRST + FLAGS, &[4])), Error::NotLoadable("without code")));
    assert!(matches!(error(&with(file, PHNUM, &[0])), Error::NotLoadable(_)));
}

#[test]
fn an_object_without_call_frame_information_is_reported() {
    let file = file(FoundBy::Index);
    assert!(matches!(error(&with(file, FIRST + 2 * 56, &[0; 4])), Error::NoFrames));
}

#[test]
fn headers_outside_the_file_are_rejected() {
    let file = file(FoundBy::Sections);
    assert!(matches!(error(&with(file.clone(), PHOFF, &u64::MAX.to_le_bytes())), Error::Malformed(_)));
    assert!(matches!(error(&with(file.clone(), PHENTSIZE, &[57])), Error::Malformed(_)));
    assert!(matches!(error(&with(file.clone(), PHNUM, &[0xFF, 0xFF])), Error::Malformed(_)));
    assert!(matches!(error(&with(file.clone(), FIRST + FILE_SIZE, &u64::MAX.to_le_bytes())), Error::Malformed(_)));
    assert!(matches!(error(&with(file.clone(), FIRST + OFFSET, &u64::MAX.to_le_bytes())), Error::Malformed(_)));
    assert!(matches!(error(&with(file, FIRST + ADDRESS, &u64::MAX.to_le_bytes())), Error::Malformed(_)));
}

#[test]
fn overlapping_or_distant_code_is_rejected() {
    let second = FIRST + 56;
    let executable = with(file(FoundBy::Sections), second + FLAGS, &[5]);
    assert!(Table::from_bytes(&executable).is_ok());
    let overlapping = with(executable.clone(), second + ADDRESS, &TEXT.to_le_bytes());
    assert!(matches!(error(&overlapping), Error::Malformed("code that overlaps")));
    let at = |address: u64| with(executable.clone(), second + ADDRESS, &address.to_le_bytes());
    assert!(Table::from_bytes(&at(2 << 20)).is_ok());
    assert!(matches!(error(&at(8 << 20)), Error::TooMuch(_)));
    assert!(matches!(error(&at(1 << 62)), Error::TooMuch(_)));
}

#[test]
fn a_truncated_file_has_no_table_or_the_full_one() {
    for found in BOTH {
        let file = file(found);
        let whole = Table::from_bytes(&file).unwrap();
        for length in (0..file.len()).step_by(7) {
            if let Ok(table) = Table::from_bytes(&file[..length]) {
                assert_eq!(table, whole, "of {length} bytes");
            }
        }
    }
}

#[test]
fn debug_frame_of_a_program_is_read() {
    let scratch = Scratch::new();
    let source = "__attribute__((noipa)) int callee(int x) { return x; } int main(void) { return callee(0); }";
    let rule = |debug: &str, name: &str| {
        let flags = ["-O1", debug, "-fno-asynchronous-unwind-tables"];
        let bytes = fs::read(scratch.compile("gcc", name, source, &flags)).unwrap();
        let elf = Elf::parse_headers(bytes.as_slice()).unwrap();
        let is_callee = |name: &[u8]| (name == b"callee").then_some(());
        let found = symbol_table::find_first_functions(&elf, 1, is_callee).unwrap();
        let [((), callee, _)] = found[..] else { panic!("{found:?}") };
        let rule = Table::from_bytes(&bytes).unwrap().rule_at(VirtOffset(callee));
        (rule.cfa_kind, rule.cfa_offset)
    };
    assert_eq!(rule("-g0", "without"), (cfa::NONE, 0));
    let (kind, offset) = rule("-g", "with");
    assert_eq!(kind, cfa::SP);
    assert_eq!(offset % 8, 0);
}
