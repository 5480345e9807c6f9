//! Search of a freeing function for an instruction at which a register has the word in front of the block.
//!
//! In glibc this word has the size of the block (malloc/malloc.c, `chunk2mem`). A probe at the instruction need not read the
//! memory of the process. Such a read costs more than all other work of a BPF program that only counts.

use super::instruction::{Arguments, Flow, Stack};
use super::reason::Reason;
use super::rules::{Choice, Code, prove};
use super::site::Cost;

/// Maximum distance of the instruction from the entry, in bytes.
const FAR: u64 = 64;

/// Number of the argument with the block, from 0.
const BLOCK: u8 = 0;

/// Instruction with the word in front of the block in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedWord {
    /// Offset of the instruction from the entry, in bytes.
    pub offset: u64,
    /// DWARF number of the register with the word.
    pub register: u8,
    /// Stack pointer at the entry minus stack pointer at the instruction, in bytes.
    pub lowered: u8,
}

impl LoadedWord {
    /// Returns the choice of this instruction. The window of the choice must have no jump targets.
    pub const fn choice(self) -> Choice {
        Choice { offset: self.offset, reason: Reason::Proven }
    }
}

/// Finds the first emulated instruction at which a register has the word. Every call with a block executes the instruction once,
/// and the argument with the block is unchanged there. The caller must still prove that no other code jumps between the entry and
/// this instruction. `symbols` are the addresses of the object's symbols.
pub fn find(code: &Code<'_>, symbols: &[u64]) -> Option<LoadedWord> {
    let found = candidate(code)?;
    prove(code, symbols, found.choice()).ok().map(|_| found)
}

fn candidate(code: &Code<'_>) -> Option<LoadedWord> {
    let block = Arguments::from_numbers(&[BLOCK]);
    let (mut at, mut lowered, mut loaded, mut tests_block) = (0, 0_u8, None, false);
    while at < FAR {
        let instruction = code.decode(at)?;
        let bytes = code.rest(at);
        if let Some(register) = loaded
            && instruction.cost == Cost::Emulated
            && !matches!(instruction.flow, Flow::Call(_))
        {
            return Some(LoadedWord { offset: at, register, lowered });
        }
        match instruction.flow {
            Flow::Next => {}
            // The branch is taken for a null pointer, which frees no block.
            Flow::Branch(_) if tests_block && code.machine.taken_if_null(bytes, code.entry + at) == Some(true) => {}
            _ => return None,
        }
        let effects = code.machine.effects(bytes);
        if effects.writes.intersects(block) {
            return None;
        }
        match effects.stack {
            Stack::Kept => {}
            Stack::Lowered => lowered = lowered.checked_add(code.machine.stack_decrease(bytes)?)?,
            Stack::Lost => return None,
        }
        if loaded.is_some_and(|register| code.machine.may_write(bytes, register)) {
            loaded = None;
        }
        loaded = code.machine.loads_word_before(bytes, BLOCK).or(loaded);
        tests_block = code.machine.tests_for_null(bytes, BLOCK);
        at += instruction.length as u64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Machine;

    fn found(bytes: &[u8]) -> Option<LoadedWord> {
        find(&Code { machine: Machine::X86_64, bytes, entry: 0x1000 }, &[])
    }

    /// Start of `free` of glibc 2.36, with `ret` at the targets of its branches.
    const FREE: &[u8] = &[
        0x48, 0x85, 0xff, // test %rdi,%rdi
        0x74, 0x1b, // je +0x20
        0x55, // push %rbp
        0x48, 0x8d, 0x77, 0xf0, // lea -0x10(%rdi),%rsi
        0x53, // push %rbx
        0x48, 0x83, 0xec, 0x18, // sub $0x18,%rsp
        0x48, 0x8b, 0x47, 0xf8, // mov -0x8(%rdi),%rax
        0xa8, 0x02, // test $0x2,%al
        0x75, 0x05, // jne +0x1c
        0xc3, 0x90, 0x90, 0x90, 0x90, 0xc3, 0x90, 0x90, 0x90, 0xc3,
    ];

    #[test]
    fn size_of_a_block_is_found_behind_its_load() {
        assert_eq!(found(FREE), Some(LoadedWord { offset: 21, register: 0, lowered: 40 }));
    }

    #[test]
    fn changed_registers_are_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut code = FREE.to_vec();
            code[at..at + bytes.len()].copy_from_slice(bytes);
            found(&code)
        };
        // mov $2,%al; xor %edi,%edi; add $0x18,%rsp; mov -0x10(%rdi),%rax; jne after the test of the block.
        assert_eq!(with(19, &[0xb0, 0x02]), None);
        assert_eq!(with(19, &[0x31, 0xff]), None);
        assert_eq!(with(11, &[0x48, 0x83, 0xc4, 0x18]), None);
        assert_eq!(with(15, &[0x48, 0x8b, 0x47, 0xf0]), None);
        assert_eq!(with(3, &[0x75]), None);
        // A jne that leads into the window.
        assert_eq!(with(21, &[0x75, 0xf0]), None);
    }
}
