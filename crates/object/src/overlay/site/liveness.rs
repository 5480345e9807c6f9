//! Registers and flags that the code after an instruction uses.

use std::collections::BTreeMap;

use super::instruction::{FlagUse, Instruction, RAX, RSP, Registers};
use crate::probe_site::{Flow, GeneralRegister, ObjectCode};

/// Maximum number of examined instructions.
const MAX_INSTRUCTIONS: usize = 256;

/// Registers that have no value at the entry of a function with a fixed number of arguments: rax, r10 and r11 (System V ABI,
/// AMD64 supplement, figure 3.4). A compiler reads no register without a value.
const WITHOUT_VALUE: [GeneralRegister; 3] = [RAX, GeneralRegister(10), GeneralRegister(11)];

/// Registers that can have the result of a function: rax and rdx.
pub(super) const RESULTS: [GeneralRegister; 2] = [RAX, GeneralRegister(2)];

/// Registers that a called function need not preserve, in the order of their use.
pub(super) const CALLER_SAVED: [GeneralRegister; 9] = [
    RAX,
    GeneralRegister(1),
    GeneralRegister(2),
    GeneralRegister(6),
    GeneralRegister(7),
    GeneralRegister(8),
    GeneralRegister(9),
    GeneralRegister(10),
    GeneralRegister(11),
];

/// Registers and flags with contents that a path from an instruction uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// Registers that an instruction reads.
    read: Registers,
    /// Registers that a called function or unknown code may read.
    passed_on: Registers,
    /// Registers that are unchanged at a return.
    returned: Registers,
    /// True if the status flags may be read.
    pub(super) flags: bool,
}

/// Contents that a path has not overwritten.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    registers: Registers,
    flags: bool,
}

impl Pending {
    fn is_empty(self) -> bool {
        self.registers.is_empty() && !self.flags
    }
}

impl Liveness {
    /// Examines the paths from the instruction at `at`, which is included.
    pub(super) fn before(object: &impl ObjectCode, at: u64) -> Self {
        let mut liveness = Self::default();
        let all = Pending { registers: Registers::ALL.without(Registers::default().with(RSP)), flags: true };
        let mut waiting = vec![(at, all)];
        let mut seen: BTreeMap<u64, Pending> = BTreeMap::new();
        let mut left = MAX_INSTRUCTIONS;
        while let Some((at, pending)) = waiting.pop() {
            let known = seen.entry(at).or_default();
            let new =
                Pending { registers: pending.registers.without(known.registers), flags: pending.flags && !known.flags };
            if new.is_empty() {
                continue;
            }
            known.registers = known.registers.union(new.registers);
            known.flags |= new.flags;
            let instruction = left.checked_sub(1).and_then(|fewer| {
                left = fewer;
                Instruction::decode(object, at)
            });
            match instruction {
                Some(instruction) => liveness.step(&instruction, new, &mut waiting),
                None => liveness.pass_on(new, true),
            }
        }
        liveness
    }

    fn step(&mut self, instruction: &Instruction, mut pending: Pending, waiting: &mut Vec<(u64, Pending)>) {
        self.read = self.read.union(pending.registers.intersection(instruction.reads));
        pending.registers = pending.registers.without(instruction.overwrites);
        match instruction.flags() {
            // After a change, a later instruction may still read a flag that was kept.
            FlagUse::None | FlagUse::Changes => {}
            FlagUse::Reads => self.flags |= pending.flags,
            FlagUse::Overwrites => pending.flags = false,
        }
        match instruction.flow {
            Flow::Next => waiting.push((instruction.next(), pending)),
            Flow::Branch(target) => waiting.extend([(instruction.next(), pending), (target, pending)]),
            Flow::Jump(target) => waiting.push((target, pending)),
            // No function expects flags, and none returns them.
            Flow::Call(_) | Flow::Indirect => self.pass_on(pending, false),
            Flow::Away => self.pass_on(pending, true),
            Flow::Return => self.returned = self.returned.union(pending.registers),
            Flow::Trap => {}
        }
    }

    fn pass_on(&mut self, pending: Pending, with_flags: bool) {
        self.passed_on = self.passed_on.union(pending.registers);
        self.flags |= pending.flags && with_flags;
    }

    /// Returns true if nothing needs the content of a caller-saved register. `written` are the registers that the function has
    /// written since its entry. `clobbers` returns true if callers know that the function changes the register.
    pub(super) fn is_dead(
        &self,
        register: GeneralRegister,
        written: Registers,
        clobbers: impl Fn(GeneralRegister) -> bool,
    ) -> bool {
        let is_passed_on = self.passed_on.contains(register);
        let is_returned = self.returned.contains(register);
        if self.read.contains(register) || register == RAX && is_returned {
            return false;
        }
        if !is_passed_on && !is_returned {
            return true;
        }
        if written.contains(register) {
            return !is_passed_on && !RESULTS.contains(&register);
        }
        (!is_passed_on || WITHOUT_VALUE.contains(&register)) && clobbers(register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::site::synthetic::{START, SyntheticCode};

    fn liveness(parts: &[&[u8]]) -> Liveness {
        Liveness::before(&SyntheticCode(parts.concat()), START)
    }

    /// Numbers of the dead registers if the function has written `written`, and changes all registers.
    fn dead(parts: &[&[u8]], written: &[u8]) -> Vec<u8> {
        let written = written.iter().copied().map(GeneralRegister).collect();
        let found = liveness(parts);
        CALLER_SAVED
            .iter()
            .filter(|register| found.is_dead(**register, written, |_| true))
            .map(|found| found.0)
            .collect()
    }

    const RET: &[u8] = &[0xc3];
    /// call to the next instruction
    const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];

    #[test]
    fn overwritten_registers_are_dead() {
        // mov %rdi,%rax; xor %edx,%edx; call
        let start: &[u8] = &[0x48, 0x89, 0xf8, 0x31, 0xd2];
        assert_eq!(dead(&[start, CALL], &[0, 2, 10, 11]), [0, 2]);
        // mov $1,%al and cmove %rcx,%rdx leave a part of the content.
        assert_eq!(dead(&[&[0xb0, 0x01, 0x48, 0x0f, 0x44, 0xd1], CALL], &[0, 2, 10, 11]), Vec::<u8>::new());
    }

    #[test]
    fn registers_without_a_value_are_dead_unless_read() {
        assert_eq!(dead(&[CALL], &[]), [0, 10, 11]);
        // mov %r10,%rcx
        assert_eq!(dead(&[&[0x4c, 0x89, 0xd1], CALL], &[]), [0, 1, 11]);
        // Callers keep values in registers that a function does not change.
        let found = liveness(&[CALL]);
        assert!(!found.is_dead(GeneralRegister(11), Registers::default(), |_| false));
        // A value that the function has computed may be an argument of the call.
        assert_eq!(dead(&[CALL], &[10]), [0, 11]);
    }

    #[test]
    fn returns_keep_results_only() {
        // The arguments rcx, rsi, rdi, r8 and r9 are dead after their last use.
        assert_eq!(dead(&[RET], &[]), [1, 2, 6, 7, 8, 9, 10, 11]);
        assert_eq!(dead(&[RET], &[0, 1, 2]), [1, 6, 7, 8, 9, 10, 11]);
        // mov %rsi,%rax; ret
        assert_eq!(dead(&[&[0x48, 0x89, 0xf0], RET], &[0, 2]), [0, 1, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn both_ways_of_a_branch_count() {
        // je +4; xor %ecx,%ecx; jmp *%rax; there: xor %esi,%esi; jmp *%rax
        let code: &[u8] = &[0x74, 0x04, 0x31, 0xc9, 0xff, 0xe0, 0x31, 0xf6, 0xff, 0xe0];
        assert_eq!(dead(&[code], &[1, 6, 10, 11]), Vec::<u8>::new());
        assert!(liveness(&[code]).flags);
    }

    #[test]
    fn flags_are_used_until_all_are_written() {
        let flags = |parts: &[&[u8]]| liveness(parts).flags;
        let je: &[u8] = &[0x74, 0x00];
        let test: &[u8] = &[0xa8, 0x02];
        // mov %rdi,%rax between.
        assert!(flags(&[&[0x48, 0x89, 0xf8], je, RET]));
        assert!(!flags(&[&[0x48, 0x89, 0xf8], test, je, RET]));
        // inc %rax keeps the carry flag, and shr %cl,%rax may keep all. Neither instruction reads a flag.
        let changes: [&[u8]; 2] = [&[0x48, 0xff, 0xc0], &[0x48, 0xd3, 0xe8]];
        for change in changes {
            assert!(flags(&[change, je, RET]));
            assert!(!flags(&[change, test, je, RET]));
        }
        assert!(!flags(&[RET]));
        assert!(!flags(&[CALL, je]));
        // Unknown code: the end of the bytes, and a system call.
        assert!(flags(&[&[0x90]]));
        assert!(flags(&[&[0x0f, 0x05], RET]));
    }

    #[test]
    fn long_paths_use_everything() {
        let nops = [0x90; MAX_INSTRUCTIONS + 1];
        assert!(liveness(&[&nops, RET]).flags);
        assert_eq!(dead(&[&nops, RET], &[0, 2, 10, 11]), Vec::<u8>::new());
        // A loop ends: jmp to itself
        assert!(!liveness(&[&[0xeb, 0xfe]]).flags);
    }
}
