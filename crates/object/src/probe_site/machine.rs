//! Dispatch to the decoder of each architecture.

use memtrace_model::JumpCondition;

use super::instruction::{Arguments, Effects, Instruction};
use super::{aarch64, x86_64};
use crate::elf::Machine;

impl Machine {
    /// Decodes the first instruction of `code`, which lies at `address`. Returns `None` if the instruction is
    /// invalid.
    pub(crate) fn decode(self, code: &[u8], address: u64) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode(code, address),
            Self::Aarch64 => aarch64::decode(code, address),
        }
    }

    /// Returns the possible effects of the first instruction of `code`.
    pub(super) fn effects(self, code: &[u8]) -> Effects {
        match self {
            Self::X86_64 => x86_64::effects(code),
            Self::Aarch64 => aarch64::effects(code),
        }
    }

    /// Returns the arguments with registers that the first instruction of `code` may read; `None` if they are not known.
    pub(super) fn reads(self, code: &[u8]) -> Option<Arguments> {
        match self {
            Self::X86_64 => x86_64::reads(code),
            Self::Aarch64 => None,
        }
    }

    /// Returns the arguments with registers that the first instruction of `code` always writes completely.
    pub(super) fn overwrites(self, code: &[u8]) -> Arguments {
        match self {
            Self::X86_64 => x86_64::overwrites(code),
            Self::Aarch64 => Arguments::NONE,
        }
    }

    /// Returns true if the kernel refuses a probe at the first instruction of `code`.
    pub(super) fn is_refused(self, code: &[u8]) -> bool {
        match self {
            Self::X86_64 => x86_64::is_refused(code),
            Self::Aarch64 => false,
        }
    }

    /// Disassembles the first instruction of `code`, which lies at `address`.
    pub(super) fn text(self, code: &[u8], address: u64) -> String {
        match self {
            Self::X86_64 => x86_64::text(code, address),
            Self::Aarch64 => aarch64::text(code, address),
        }
    }

    /// Calls `on_branch` with the address and the target of every byte sequence in `code` that could be a direct
    /// branch, with a 32-bit distance on x86-64. Sequences begin at any multiple of the instruction alignment.
    pub(crate) fn branches(self, code: &[u8], address: u64, on_branch: impl FnMut(u64, u64)) {
        match self {
            Self::X86_64 => x86_64::branches(code, address, on_branch),
            Self::Aarch64 => aarch64::branches(code, address, on_branch),
        }
    }

    /// Returns the address of the GOT slot of the PLT stub at the start of `code`, which lies at `address`. The stub
    /// jumps to the content of the slot.
    pub fn slot(self, code: &[u8], address: u64) -> Option<u64> {
        match self {
            Self::X86_64 => x86_64::slot(code, address),
            Self::Aarch64 => aarch64::slot(code, address),
        }
    }

    /// Returns the address of the pointer with the target of the indirect jump or call at the start of `code`, which
    /// lies at `address`. Returns `None` if the address of the pointer is not constant.
    pub(crate) fn pointer_of(self, code: &[u8], address: u64) -> Option<u64> {
        match self {
            Self::X86_64 => x86_64::pointer_of(code, address),
            Self::Aarch64 => None,
        }
    }

    /// Returns true if the first instruction of `code` compares argument number `argument` with null.
    pub(crate) fn tests_for_null(self, code: &[u8], argument: u8) -> bool {
        match self {
            Self::X86_64 => x86_64::tests_for_null(code, argument),
            Self::Aarch64 => false,
        }
    }

    /// If the first instruction of `code` loads the word in front of the address in this argument, returns the DWARF
    /// number of the destination register. Returns `None` for any other instruction.
    pub(super) fn loads_word_before(self, code: &[u8], argument: u8) -> Option<u8> {
        match self {
            Self::X86_64 => x86_64::loads_word_before(code, argument),
            Self::Aarch64 => None,
        }
    }

    /// Returns true if the first instruction of `code` may write the register with this DWARF number.
    pub(super) fn may_write(self, code: &[u8], register: u8) -> bool {
        match self {
            Self::X86_64 => x86_64::may_write(code, register),
            Self::Aarch64 => true,
        }
    }

    /// Returns the decrease of the stack pointer, in bytes, by the first instruction of `code`; `None` if it is not constant.
    pub(super) fn stack_decrease(self, code: &[u8]) -> Option<u8> {
        match self {
            Self::X86_64 => x86_64::stack_decrease(code),
            Self::Aarch64 => None,
        }
    }

    /// Returns the condition of the branch at the start of `code`, which lies at `address`: true if the branch is taken for a
    /// null value, false if it is taken for any other value. Returns `None` if the branch depends on another condition.
    pub(crate) fn taken_if_null(self, code: &[u8], address: u64) -> Option<bool> {
        match self {
            Self::X86_64 => x86_64::taken_if_null(code, address),
            Self::Aarch64 => None,
        }
    }

    /// Returns true if the first instruction of `code` is padding between functions.
    pub(crate) fn is_padding(self, code: &[u8]) -> bool {
        match self {
            Self::X86_64 => x86_64::is_padding(code),
            Self::Aarch64 => aarch64::is_padding(code),
        }
    }

    /// Returns the condition of the conditional jump at the start of `code`; `None` if BPF cannot evaluate it.
    pub(super) fn jump_condition(self, code: &[u8]) -> Option<JumpCondition> {
        match self {
            Self::X86_64 => x86_64::jump_condition(code),
            Self::Aarch64 => None,
        }
    }

    /// Returns true if the indirect jump at the start of `code` reads its target from a table, or is marked as such a
    /// jump.
    pub(super) fn jumps_by_table(self, code: &[u8]) -> bool {
        match self {
            Self::X86_64 => x86_64::jumps_by_table(code),
            Self::Aarch64 => false,
        }
    }

    /// Returns the alignment of instructions in bytes.
    pub(super) fn alignment(self) -> usize {
        match self {
            Self::X86_64 => 1,
            Self::Aarch64 => 4,
        }
    }

    /// Returns the number of bytes that consecutive chunks of code must share, so that each instruction is complete in one of
    /// them.
    pub fn overlap(self) -> usize {
        match self {
            Self::X86_64 => 14,
            Self::Aarch64 => 0,
        }
    }
}
