//! Synthetic objects for tests: zeroed code with arbitrary call frame information.

use gimli::write::{
    Address, CallFrameInstruction, CommonInformationEntry, DebugFrame, EhFrame, EndianVec, FrameDescriptionEntry,
    FrameTable,
};
use gimli::{AArch64, Encoding, Format, LittleEndian, Register, X86_64};

use crate::elf::Machine;

/// Address and file offset of the code of all synthetic objects.
pub(super) const TEXT: u64 = 0x1000;

/// Headers of a file that lead to the call frame information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// Section headers only.
    Sections,
    /// Program headers only, as in a file without section headers.
    Index,
}

/// Builder of an object.
pub(super) struct Object {
    pub(super) machine: Machine,
    /// Length of the code in bytes.
    pub(super) code: u32,
    frames: FrameTable,
}

impl Object {
    pub(super) fn new(machine: Machine, code: u32) -> Self {
        Self { machine, code, frames: FrameTable::default() }
    }

    /// Adds the description of a function of `length` bytes at `offset`. At its first instruction, only the return
    /// address is on the stack.
    pub(super) fn function(&mut self, offset: u32, length: u32, instructions: Vec<(u32, CallFrameInstruction)>) {
        self.describe(offset, length, false, instructions);
    }

    /// Adds a description that is marked as a signal frame.
    pub(super) fn signal_frame(&mut self, offset: u32, length: u32, instructions: Vec<(u32, CallFrameInstruction)>) {
        self.describe(offset, length, true, instructions);
    }

    fn describe(&mut self, offset: u32, length: u32, signal: bool, instructions: Vec<(u32, CallFrameInstruction)>) {
        let mut common = self.common();
        common.signal_trampoline = signal;
        let common = self.frames.add_cie(common);
        let mut entry = FrameDescriptionEntry::new(Address::Constant(TEXT + u64::from(offset)), length);
        for (offset, instruction) in instructions {
            entry.add_instruction(offset, instruction);
        }
        self.frames.add_fde(common, entry);
    }

    /// Returns the common entry that compilers write.
    fn common(&self) -> CommonInformationEntry {
        let encoding = Encoding { format: Format::Dwarf32, version: 1, address_size: 8 };
        match self.machine {
            Machine::X86_64 => {
                let mut common = CommonInformationEntry::new(encoding, 1, -8, X86_64::RA);
                common.add_instruction(CallFrameInstruction::Cfa(X86_64::RSP, 8));
                common.add_instruction(CallFrameInstruction::Offset(X86_64::RA, -8));
                common
            }
            Machine::Aarch64 => {
                let mut common = CommonInformationEntry::new(encoding, 4, -8, AArch64::X30);
                common.add_instruction(CallFrameInstruction::Cfa(AArch64::SP, 0));
                common
            }
        }
    }

    /// Returns the bytes of the section.
    pub(super) fn eh_frame(&self) -> Vec<u8> {
        let mut section = EhFrame(EndianVec::new(LittleEndian));
        self.frames.write_eh_frame(&mut section).unwrap();
        let mut bytes = section.0.into_vec();
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    /// Returns the bytes of a `.debug_frame` with the same descriptions.
    pub(super) fn debug_frame(&self) -> Vec<u8> {
        let mut section = DebugFrame(EndianVec::new(LittleEndian));
        self.frames.write_debug_frame(&mut section).unwrap();
        section.0.into_vec()
    }

    pub(super) fn file(&self, found: FoundBy) -> Vec<u8> {
        file(self.machine, self.code, &self.eh_frame(), found)
    }
}

/// Returns a `.debug_frame` with 1000 descriptions of the byte of code at `begin`. Their large common entry exceeds the
/// limit of bytes that are read.
pub(super) fn excessive_debug_frame(begin: u64) -> Vec<u8> {
    // No augmentation; code alignment 1, data alignment -8, return address in column 16; `DW_CFA_def_cfa` rsp+8, and then
    // `DW_CFA_nop`.
    let mut common = vec![0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 1, 0x78, 16, 0x0C, 7, 8, 0x90, 1];
    common.resize(100_000, 0);
    let mut section = Vec::new();
    put(&mut section, &[(common.len() as u64, 4)]);
    section.extend_from_slice(&common);
    for _ in 0..1000 {
        put(&mut section, &[(20, 4), (0, 4), (begin, 8), (1, 8)]);
    }
    section
}

/// Returns a list with one instruction, at the start of a function.
pub(super) fn first(instruction: CallFrameInstruction) -> Vec<(u32, CallFrameInstruction)> {
    vec![(0, instruction)]
}

/// Returns the expression with these bytes.
pub(super) fn expression(bytes: &[u8]) -> gimli::write::Expression {
    gimli::write::Expression::raw(bytes.to_vec())
}

/// Returns the register `rN` of x86-64, from r8 on: its DWARF number is N.
pub(super) fn register(number: u16) -> Register {
    Register(number)
}

/// Returns an ELF file: headers, `code` bytes at [`TEXT`], `eh_frame`, and then its index or section headers, as
/// `found` says. Addresses equal file offsets.
pub(super) fn file(machine: Machine, code: u32, eh_frame: &[u8], found: FoundBy) -> Vec<u8> {
    let eh_frame_at = TEXT + u64::from(code).next_multiple_of(8);
    let index_at = eh_frame_at + (eh_frame.len() as u64).next_multiple_of(8);
    let index = if found == FoundBy::Index { index(eh_frame, eh_frame_at, index_at) } else { Vec::new() };
    let names = b"\0.text\0.eh_frame\0";
    let names_at = index_at + (index.len() as u64).next_multiple_of(8);
    let sections_at = names_at + names.len().next_multiple_of(8) as u64;

    let machine: u16 = if machine == Machine::X86_64 { 62 } else { 183 };
    let by_sections = found == FoundBy::Sections;
    let mut out = Vec::new();
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut out, &[(3, 2), (machine.into(), 2), (1, 4), (0, 8), (64, 8)]);
    put(&mut out, &[(if by_sections { sections_at } else { 0 }, 8), (0, 4), (64, 2), (56, 2), (3, 2)]);
    put(&mut out, &if by_sections { [(64, 2), (4, 2), (3, 2)] } else { [(0, 2); 3] });
    program(&mut out, 1, 5, TEXT, code.into());
    program(&mut out, 1, 4, eh_frame_at, names_at - eh_frame_at);
    program(&mut out, if by_sections { 0 } else { 0x6474_E550 }, 4, index_at, index.len() as u64);

    for (at, bytes) in [(eh_frame_at, eh_frame), (index_at, &index), (names_at, names)] {
        out.resize(usize::try_from(at).unwrap(), 0);
        out.extend_from_slice(bytes);
    }
    out.resize(usize::try_from(sections_at).unwrap(), 0);
    if by_sections {
        section(&mut out, 0, 0, 0, 0);
        section(&mut out, 1, 6, TEXT, code.into());
        section(&mut out, 7, 2, eh_frame_at, eh_frame.len() as u64);
        section(&mut out, 0, 0, names_at, names.len() as u64);
    }
    out
}

/// Returns an `.eh_frame_hdr`: version, encodings, address of `.eh_frame`, number of entries, and entries (LSB Core
/// 5.0, 10.6.2).
fn index(eh_frame: &[u8], eh_frame_at: u64, index_at: u64) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(eh_frame[at..at + 4].try_into().unwrap()) as usize;
    let mut entries = Vec::new();
    let mut at = 0;
    while at + 4 <= eh_frame.len() && word(at) != 0 && at + 4 + word(at) <= eh_frame.len() {
        if word(at + 4) != 0 {
            let begin = u64::from_le_bytes(eh_frame[at + 8..at + 16].try_into().unwrap());
            entries.push((begin, eh_frame_at + at as u64));
        }
        at += 4 + word(at);
    }
    entries.sort_unstable();
    // All addresses are absolute and have four bytes (DW_EH_PE_udata4).
    let mut out = vec![1, 3, 3, 3];
    put(&mut out, &[(eh_frame_at, 4), (entries.len() as u64, 4)]);
    for (begin, entry) in entries {
        put(&mut out, &[(begin, 4), (entry, 4)]);
    }
    assert!(index_at > eh_frame_at);
    out
}

fn program(out: &mut Vec<u8>, kind: u64, flags: u64, at: u64, size: u64) {
    put(out, &[(kind, 4), (flags, 4), (at, 8), (at, 8), (at, 8), (size, 8), (size, 8), (1, 8)]);
}

fn section(out: &mut Vec<u8>, name: u64, flags: u64, at: u64, size: u64) {
    put(out, &[(name, 4), (1, 4), (flags, 8), (at, 8), (at, 8), (size, 8), (0, 8), (1, 8), (0, 8)]);
}

/// Appends numbers, each with its width in bytes.
fn put(out: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for &(number, width) in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..width]);
    }
}
