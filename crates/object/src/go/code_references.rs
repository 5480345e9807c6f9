//! Variables that the code of a function refers to. The compiler addresses them relative to the instruction pointer.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use crate::elf::{Elf, Machine, Source};

/// Maximum length of a function in bytes. The functions of the runtime that are read have less than 2000.
const MAX_CODE: u64 = 1 << 16;

/// Decoded instructions of a function.
#[derive(Debug, Default)]
pub(super) struct CodeReferences(Vec<Instruction>);

impl CodeReferences {
    /// Decodes the function at these addresses. The result has no instructions if the machine is not x86-64, or if
    /// there is no code at the addresses.
    pub(super) fn of(elf: &Elf<impl Source>, function: &Range<u64>) -> Self {
        let end = function.end.min(function.start.saturating_add(MAX_CODE));
        if elf.machine() != Machine::X86_64 || end <= function.start {
            return Self::default();
        }
        match elf.code(function.start, end) {
            Ok((start, code)) if start == function.start => Self::decode(&code, start),
            _ => Self::default(),
        }
    }

    pub(super) fn decode(code: &[u8], address: u64) -> Self {
        let instructions = Decoder::with_ip(64, code, address, DecoderOptions::NONE).into_iter();
        Self(instructions.take_while(|instruction| !instruction.is_invalid()).collect())
    }

    /// Returns the addresses of the distinct variables of `size` bytes that are loaded into a register, in the order of the code.
    pub(super) fn loads(&self, size: usize) -> Vec<u64> {
        let mut addresses = Vec::new();
        for instruction in &self.0 {
            let is_load = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().size() == size
                && instruction.op1_kind() == OpKind::Memory;
            if let Some(address) = variable(instruction).filter(|_| is_load)
                && !addresses.contains(&address)
            {
                addresses.push(address);
            }
        }
        addresses
    }
}

/// Returns the address of the operand in memory, if it is relative to the instruction pointer.
fn variable(instruction: &Instruction) -> Option<u64> {
    instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_those_of_mprof_flush_locked() {
        // Instructions of the function in a program of Go 1.19, as objdump prints them. The list is at 0xe380f0.
        let code = [
            0x83, 0xf8, 0x03, // cmp $0x3,%eax
            0x48, 0x8b, 0x0d, 0x99, 0x7f, 0xa0, 0x00, // mov 0xa07f99(%rip),%rcx
            0x48, 0x8b, 0x5c, 0x08, 0x20, // mov 0x20(%rax,%rcx,1),%rbx
            0x48, 0x01, 0x18, // add %rbx,(%rax)
            0x48, 0x8b, 0x0d, 0x8a, 0x7f, 0xa0, 0x00, // mov 0xa07f8a(%rip),%rcx
            0x8b, 0x05, 0x10, 0x00, 0x00, 0x00, // mov 0x10(%rip),%eax
            0xc3, // ret
        ];
        let references = CodeReferences::decode(&code, 0x43_014d);
        assert_eq!(references.loads(8), [0xe3_80f0]);
        assert_eq!(references.loads(4), [0x43_017c]);
    }
}
