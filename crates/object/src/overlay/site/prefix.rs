//! Walk from the entry of a function along the path without taken branches.
//!
//! The stub calls the function at its entry, after the function has executed the instructions before the site. So these
//! instructions may only change registers and the frame below the return address.

use std::ops::Range;

use iced_x86::{ConditionCode, Mnemonic};

use super::instruction::{Instruction, MemoryWrite, RSP, Registers};
use super::refusal::SiteRefusal;
use crate::probe_site::{Flow, GeneralRegister, ObjectCode};

/// Maximum number of instructions of the walk. The sites of glibc and jemalloc are among the first 17.
const MAX_INSTRUCTIONS: usize = 24;

/// Length in bytes of the jump that replaces a site.
const JUMP: usize = 5;

/// Maximum size of a frame, in bytes.
const MAX_FRAME: u32 = 1 << 16;

/// Number of bytes below the stack pointer that signal handlers leave alone (System V ABI, AMD64 supplement, 3.2.2).
const RED_ZONE: i64 = 128;

/// Size of a stack slot in bytes.
const WORD: i64 = 8;

/// Argument registers in order: rdi, rsi, rdx, rcx, r8, r9 (System V ABI, AMD64 supplement, 3.2.3).
const ARGUMENTS: [GeneralRegister; 6] = [
    GeneralRegister(7),
    GeneralRegister(6),
    GeneralRegister(2),
    GeneralRegister(1),
    GeneralRegister(8),
    GeneralRegister(9),
];

/// State of a function before an instruction.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Number of the argument that each register contains. The index is the number of the register.
    arguments: [Option<u8>; 16],
    /// Stack pointer at the entry minus stack pointer, in bytes.
    pub(super) lowered: u32,
    /// Registers of the caller in the frame. The slot of each is at the stack pointer at the entry minus the number.
    pub(super) saved: Vec<(GeneralRegister, u32)>,
    /// Registers that have been written since the entry.
    pub(super) written: Registers,
}

impl State {
    fn at_entry() -> Self {
        let mut state = Self { arguments: [None; 16], lowered: 0, saved: Vec::new(), written: Registers::default() };
        for (number, register) in (0..).zip(ARGUMENTS) {
            state.set(register, Some(number));
        }
        state
    }

    fn set(&mut self, register: GeneralRegister, argument: Option<u8>) {
        if let Some(place) = self.arguments.get_mut(usize::from(register.0)) {
            *place = argument;
        }
    }

    /// Returns the number of the argument in a register.
    fn argument_in(&self, register: GeneralRegister) -> Option<u8> {
        self.arguments.get(usize::from(register.0)).copied().flatten()
    }

    /// Returns all registers with this argument.
    pub(super) fn registers_with(&self, argument: u8) -> Registers {
        Registers::ALL.iter().filter(|register| self.argument_in(*register) == Some(argument)).collect()
    }

    /// Returns a register with this argument: the register that passed it, if the argument is still there.
    pub(super) fn register_with(&self, argument: u8) -> Option<GeneralRegister> {
        let all = self.registers_with(argument);
        let passed = ARGUMENTS.get(usize::from(argument)).copied().filter(|register| all.contains(*register));
        passed.or_else(|| all.iter().next())
    }

    /// Returns true if a jump to another function passes the arguments before `count` on, and leaves nothing on the stack.
    fn passes_on(&self, count: usize) -> bool {
        let mut arguments = (0..).zip(ARGUMENTS).take(count);
        self.lowered == 0
            && self.written.intersection(Registers::preserved()).is_empty()
            && arguments.all(|(number, register)| self.argument_in(register) == Some(number))
    }

    /// Applies the effects of an instruction. Returns `None` if they are not confined to registers and the frame.
    fn step(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.changes_state || instruction.decoded.has_lock_prefix() {
            return None;
        }
        let copied = instruction.copy().map(|(from, to)| (to, self.argument_in(from)));
        if instruction.writes.contains(RSP) {
            self.lower(instruction)?;
        } else {
            self.check_memory(instruction.memory)?;
        }
        for register in instruction.writes.iter().filter(|register| *register != RSP) {
            let is_saved = self.saved.iter().any(|(saved, _)| *saved == register);
            if Registers::preserved().contains(register) && !is_saved {
                return None;
            }
            self.set(register, None);
            self.written = self.written.with(register);
        }
        if let Some((to, argument)) = copied {
            self.set(to, argument);
        }
        Some(())
    }

    /// Applies an instruction that lowers the stack pointer by a constant: `push` or `sub`.
    fn lower(&mut self, instruction: &Instruction) -> Option<()> {
        let is_push = instruction.decoded.mnemonic() == Mnemonic::Push
            && i64::from(instruction.decoded.stack_pointer_increment()) == -WORD;
        let bytes = if is_push { 8 } else { instruction.lowers_stack()? };
        self.lowered = self.lowered.checked_add(bytes).filter(|lowered| *lowered <= MAX_FRAME)?;
        let pushed = instruction.register_operand(0).filter(|_| is_push);
        if let Some(register) = pushed.filter(|register| Registers::preserved().contains(*register))
            && !self.written.contains(register)
            && !self.saved.iter().any(|(saved, _)| *saved == register)
        {
            self.saved.push((register, self.lowered));
        }
        Some(())
    }

    /// Checks that a write to memory changes only the frame, and none of the saved registers.
    fn check_memory(&self, write: MemoryWrite) -> Option<()> {
        match write {
            MemoryWrite::None => Some(()),
            MemoryWrite::Stack { first, size } => {
                let lowered = i64::from(self.lowered);
                let first = first.checked_sub(lowered)?;
                let end = first.checked_add(size)?;
                let is_in_frame = first >= -lowered - RED_ZONE && end <= 0;
                let is_saved = |(_, depth): &(GeneralRegister, u32)| {
                    let slot = -i64::from(*depth);
                    first < slot + WORD && slot < end
                };
                (is_in_frame && !self.saved.iter().any(is_saved)).then_some(())
            }
            MemoryWrite::Thread | MemoryWrite::Other => None,
        }
    }
}

/// An instruction that a jump could replace.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) instruction: Instruction,
    /// Instruction directly before.
    pub(super) before: Option<Instruction>,
    pub(super) state: State,
    /// Number of conditional branches before the instruction.
    pub(super) branches: usize,
}

/// A conditional branch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    pub(super) at: u64,
    pub(super) target: u64,
    /// Number of the argument that is null if the branch is taken; `None` if no such argument is known.
    pub(super) null: Option<u8>,
}

/// Instructions of a function from its entry on.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    pub(super) candidates: Vec<Candidate>,
    pub(super) branches: Vec<Branch>,
    /// Target and state of the jump to another function that ends the path, if there is one.
    end: Option<(u64, State)>,
    /// Reason for the end of the walk, if it is neither a jump nor the limit.
    stop: Option<SiteRefusal>,
    /// Length of the first instruction, and total length of the instructions after it.
    lengths: (usize, usize),
}

impl Prefix {
    /// Walks through the function with this code.
    pub(super) fn of(object: &impl ObjectCode, code: &Range<u64>) -> Self {
        let (candidates, branches) = (Vec::new(), Vec::new());
        let mut prefix = Self { candidates, branches, end: None, stop: None, lengths: (0, 0) };
        let mut state = State::at_entry();
        let mut before: Option<Instruction> = None;
        let mut at = code.start;
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(instruction) = Instruction::decode(object, at).filter(|found| found.next() <= code.end) else {
                prefix.stop = Some(SiteRefusal::Undecodable(at));
                break;
            };
            if before.is_none() {
                prefix.lengths.0 = instruction.bytes.len();
            } else {
                prefix.lengths.1 += instruction.bytes.len();
                if is_replaceable(&instruction, code) {
                    prefix.candidates.push(Candidate {
                        instruction: instruction.clone(),
                        before: before.clone(),
                        state: state.clone(),
                        branches: prefix.branches.len(),
                    });
                }
            }
            match instruction.flow {
                Flow::Next => {
                    if state.step(&instruction).is_none() {
                        prefix.stop = Some(SiteRefusal::FrameUnknown(at));
                        break;
                    }
                }
                Flow::Branch(target) if is_plain_branch(&instruction) => {
                    let null = before.as_ref().and_then(|test| null_argument(&state, test, &instruction));
                    prefix.branches.push(Branch { at, target, null });
                }
                Flow::Jump(target) if !code.contains(&target) => {
                    prefix.end = Some((target, state));
                    break;
                }
                Flow::Branch(_)
                | Flow::Jump(_)
                | Flow::Call(_)
                | Flow::Indirect
                | Flow::Return
                | Flow::Trap
                | Flow::Away => break,
            }
            at = instruction.next();
            before = Some(instruction);
        }
        prefix
    }

    /// Returns the target of the jump that ends the path, if the jump passes the arguments before `count` on.
    pub(super) fn forwards_to(&self, count: usize) -> Option<u64> {
        self.end.as_ref().filter(|(_, state)| state.passes_on(count)).map(|(target, _)| *target)
    }

    /// Returns the reason that there is no candidate.
    pub(super) fn refusal(&self) -> SiteRefusal {
        let (first, others) = self.lengths;
        if first >= JUMP && others < JUMP {
            return SiteRefusal::FirstInstruction;
        }
        let by_length = if others >= JUMP { SiteRefusal::SeveralInstructions } else { SiteRefusal::NoInstruction };
        self.stop.unwrap_or(by_length)
    }
}

/// Returns true if a jump can replace the instruction, and the instruction can be executed at another address. `code` is the
/// code of the function.
fn is_replaceable(instruction: &Instruction, code: &Range<u64>) -> bool {
    match instruction.flow {
        Flow::Next => is_plain(instruction),
        Flow::Branch(_) => matches!(instruction.bytes[..], [0x0f, 0x80..=0x8f, _, _, _, _]),
        Flow::Jump(target) => matches!(instruction.bytes[..], [0xe9, _, _, _, _]) && !code.contains(&target),
        Flow::Call(_) | Flow::Indirect | Flow::Return | Flow::Trap | Flow::Away => false,
    }
}

/// Returns true for an instruction that only has effects on registers, flags and memory. Tools with probes of their own change
/// instructions without an effect.
fn is_plain(instruction: &Instruction) -> bool {
    let decoded = &instruction.decoded;
    let has_prefix = decoded.has_lock_prefix() || decoded.has_rep_prefix() || decoded.has_repne_prefix();
    let moves_stack = instruction.writes.contains(RSP) && instruction.lowers_stack().is_none();
    instruction.bytes.len() >= JUMP
        && !has_prefix
        && !moves_stack
        && !instruction.changes_state
        && !decoded.is_privileged()
        && decoded.mnemonic() != Mnemonic::Nop
        && instruction.is_relocatable()
}

/// Returns true for a conditional jump without a prefix, other than `jrcxz` and `loop`.
fn is_plain_branch(instruction: &Instruction) -> bool {
    matches!(instruction.bytes[..], [0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, _, _, _, _])
}

/// Returns the argument that is null if `branch` is taken: `test` compares it with itself, and the branch is `je`.
fn null_argument(state: &State, test: &Instruction, branch: &Instruction) -> Option<u8> {
    let is_test = test.decoded.mnemonic() == Mnemonic::Test && branch.decoded.condition_code() == ConditionCode::e;
    state.argument_in(test.same_operands().filter(|_| is_test)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::site::synthetic::{START as ENTRY, SyntheticCode};

    fn prefix(parts: &[&[u8]]) -> Prefix {
        let code = SyntheticCode(parts.concat());
        let end = ENTRY + code.0.len() as u64;
        Prefix::of(&code, &(ENTRY..end))
    }

    /// Offsets of the candidates.
    fn offsets(prefix: &Prefix) -> Vec<u64> {
        prefix.candidates.iter().map(|candidate| candidate.instruction.at - ENTRY).collect()
    }

    /// cmpb $0,0(%rip)
    const CMPB: &[u8] = &[0x80, 0x3d, 0, 0, 0, 0, 0];
    const PUSH_RBX: &[u8] = &[0x53];
    const RET: &[u8] = &[0xc3];

    #[test]
    fn registers_and_frame_of_the_caller_are_followed() {
        // push %r12; push %rbp; push %rbx; mov %rdi,%rbx; sub $0x10,%rsp; mov %rsi,0x8(%rsp); xor %esi,%esi
        let start: &[u8] = &[
            0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x74, 0x24, 0x08, 0x31, 0xf6,
        ];
        let found = prefix(&[start, CMPB, RET]);
        assert_eq!(offsets(&found), [11, 18]);
        let state = &found.candidates[1].state;
        let saved = [(12, 8), (5, 16), (3, 24)].map(|(register, depth)| (GeneralRegister(register), depth));
        assert_eq!((state.lowered, &state.saved[..]), (40, &saved[..]));
        assert_eq!(state.register_with(0), Some(GeneralRegister(7)));
        assert_eq!(state.registers_with(0), [3, 7].into_iter().map(GeneralRegister).collect());
        assert_eq!(state.register_with(1), None);
        assert_eq!(state.written, [3, 6].into_iter().map(GeneralRegister).collect());
    }

    #[test]
    fn effects_outside_of_the_frame_end_the_walk() {
        let ends: [&[u8]; 11] = [
            &[0x48, 0x89, 0xfb],                // mov %rdi,%rbx without a push
            &[0xc6, 0x05, 0, 0, 0, 0, 1],       // movb $1,0(%rip)
            &[0x64, 0xc7, 0x00, 0x0c, 0, 0, 0], // movl $12,%fs:(%rax)
            &[0x48, 0x89, 0x3c, 0x24],          // mov %rdi,(%rsp): the return address
            &[0x48, 0x89, 0x7c, 0x24, 0x08],    // mov %rdi,0x8(%rsp): the caller's frame
            &[0x58],                            // pop %rax
            &[0x48, 0x83, 0xe4, 0xf0],          // and $-16,%rsp
            &[0x66, 0x55],                      // push %bp
            &[0xf0, 0x48, 0xff, 0x07],          // lock incq (%rdi)
            &[0xfc],                            // cld
            &[0x48, 0x81, 0xec, 0, 0, 0, 0x10], // sub $0x10000000,%rsp
        ];
        for end in ends {
            let found = prefix(&[&[0x90], end, CMPB, RET]);
            assert!(offsets(&found).iter().all(|offset| *offset <= 1), "{end:x?}");
            assert_eq!(found.stop, Some(SiteRefusal::FrameUnknown(ENTRY + 1)), "{end:x?}");
        }
        // push %rbx; mov %rdi,(%rsp) overwrites the saved register.
        let found = prefix(&[PUSH_RBX, &[0x48, 0x89, 0x3c, 0x24], CMPB, RET]);
        assert!(offsets(&found).is_empty());
        assert_eq!(found.stop, Some(SiteRefusal::FrameUnknown(ENTRY + 1)));
        // The red zone belongs to the frame: mov %rdi,-0x8(%rsp).
        assert_eq!(offsets(&prefix(&[&[0x90, 0x48, 0x89, 0x7c, 0x24, 0xf8], CMPB, RET])), [1, 6]);
    }

    #[test]
    fn only_plain_instructions_of_five_bytes_are_replaced() {
        let replaced: [&[u8]; 5] = [
            CMPB,
            &[0x0f, 0x87, 0x20, 0, 0, 0],                // ja
            &[0xe9, 0, 1, 0, 0],                         // jmp out of the function
            &[0x48, 0x81, 0xec, 0x88, 0, 0, 0],          // sub $0x88,%rsp
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], // mov %fs:0,%rax
        ];
        let kept: [&[u8]; 10] = [
            &[0x48, 0x89, 0xf8],                // mov %rdi,%rax: 3 bytes
            &[0x74, 0x20],                      // je: 2 bytes
            &[0xe8, 0, 1, 0, 0],                // call
            &[0xe9, 0, 0, 0, 0],                // jmp within the function
            &[0x0f, 0x1f, 0x44, 0, 0],          // nop
            &[0x68, 1, 0, 0, 0],                // push $1
            &[0x48, 0x8d, 0x64, 0x24, 0x08],    // lea 0x8(%rsp),%rsp
            &[0x67, 0x8b, 0x1d, 0x10, 0, 0, 0], // mov 0x10(%eip),%ebx
            &[0xf0, 0x48, 0xff, 0x47, 0x08],    // lock incq 0x8(%rdi)
            &[0xff, 0x25, 0, 0, 0, 0],          // jmp *0(%rip)
        ];
        for bytes in replaced {
            assert_eq!(offsets(&prefix(&[&[0x90], bytes, RET])), [1], "{bytes:x?}");
            // The first instruction is left to other tools.
            assert!(offsets(&prefix(&[bytes, RET])).is_empty(), "{bytes:x?}");
        }
        for bytes in kept {
            assert!(offsets(&prefix(&[&[0x90], bytes, RET])).is_empty(), "{bytes:x?}");
        }
    }

    #[test]
    fn null_tests_of_arguments_are_recognized() {
        let null = |parts: &[&[u8]]| prefix(parts).branches.iter().map(|branch| branch.null).collect::<Vec<_>>();
        let je: &[u8] = &[0x74, 0x10];
        // test %rdi,%rdi; then with je, jne, and test of a register without an argument.
        assert_eq!(null(&[&[0x48, 0x85, 0xff], je, RET]), [Some(0)]);
        assert_eq!(null(&[&[0x48, 0x85, 0xff], &[0x75, 0x10], RET]), [None]);
        assert_eq!(null(&[&[0x48, 0x85, 0xc0], je, RET]), [None]);
        // test %edi,%edi compares half of the address.
        assert_eq!(null(&[&[0x85, 0xff], je, RET]), [None]);
        // mov %rsi,%rax; test %rax,%rax
        assert_eq!(null(&[&[0x48, 0x89, 0xf0, 0x48, 0x85, 0xc0], je, RET]), [Some(1)]);
        // push %rbx between the test and the branch.
        assert_eq!(null(&[&[0x48, 0x85, 0xff], PUSH_RBX, je, RET]), [None]);
    }

    #[test]
    fn forwarding_jumps_keep_arguments_and_stack() {
        let jump: &[u8] = &[0xe9, 0, 1, 0, 0];
        let target = |start: &[u8]| prefix(&[start, jump]).forwards_to(2);
        // cmpb; xor %edx,%edx
        assert_eq!(target(CMPB), Some(ENTRY + 7 + 5 + 0x100));
        assert_eq!(target(&[0x31, 0xd2]), Some(ENTRY + 2 + 5 + 0x100));
        // xor %esi,%esi; push %rax; jmp to the function itself
        assert_eq!(target(&[0x31, 0xf6]), None);
        assert_eq!(target(&[0x50]), None);
        assert_eq!(prefix(&[CMPB, &[0xeb, 0xf7]]).forwards_to(2), None);
    }

    #[test]
    fn refusals_name_the_reason() {
        let refusal = |parts: &[&[u8]]| prefix(parts).refusal();
        assert_eq!(refusal(&[CMPB, RET]), SiteRefusal::FirstInstruction);
        assert_eq!(refusal(&[PUSH_RBX, RET]), SiteRefusal::NoInstruction);
        // test %rdi,%rdi; je; sub $8,%rsp; ret
        let several: &[u8] = &[0x48, 0x85, 0xff, 0x74, 0x05, 0x48, 0x83, 0xec, 0x08];
        assert_eq!(refusal(&[several, RET]), SiteRefusal::SeveralInstructions);
        assert_eq!(refusal(&[PUSH_RBX, &[0x06]]), SiteRefusal::Undecodable(ENTRY + 1));
        assert_eq!(refusal(&[&[0x90], &[0x48, 0x89, 0xfb], RET]), SiteRefusal::FrameUnknown(ENTRY + 1));
        // The function ends within its second instruction.
        assert_eq!(refusal(&[PUSH_RBX, &[0x48, 0x85]]), SiteRefusal::Undecodable(ENTRY + 1));
    }
}
