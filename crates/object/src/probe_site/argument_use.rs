//! Use of an argument register by a function. The use shows whether the function has this argument.

use std::collections::HashSet;

use super::instruction::{Arguments, Flow};
use super::rules::Code;

/// Maximum number of instructions that are followed.
const MAX_INSTRUCTIONS: usize = 512;

/// Use of the register of an argument, on all paths from the entry that could be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentUse {
    /// An instruction reads the register before another one writes it. A compiler reads no register without a value, so
    /// the function has this argument.
    Read,
    /// Each path first writes the whole register, or returns.
    Unused,
    /// Another function may read the register, or the instructions are not known.
    Unknown,
}

/// Returns the use of the register of the argument with this number.
pub(crate) fn use_of(code: &Code<'_>, argument: u8) -> ArgumentUse {
    let register = Arguments::from_numbers(&[argument]);
    let inside = |target: u64| {
        let at = target.wrapping_sub(code.entry);
        (at < code.bytes.len() as u64).then_some(at)
    };
    let mut seen = HashSet::new();
    let mut starts = vec![0];
    let mut is_followed = true;
    while let Some(mut at) = starts.pop() {
        while seen.insert(at) {
            let (Some(instruction), Some(reads)) = (code.decode(at), code.machine.reads(code.rest(at))) else {
                return ArgumentUse::Unknown;
            };
            if seen.len() > MAX_INSTRUCTIONS {
                return ArgumentUse::Unknown;
            }
            if reads.intersects(register) {
                return ArgumentUse::Read;
            }
            if code.machine.effects(code.rest(at)).writes.intersects(register) {
                // After a conditional or partial write, the register can still have the argument.
                is_followed &= code.machine.overwrites(code.rest(at)).intersects(register);
                break;
            }
            let target = instruction.flow.target().and_then(inside);
            match (instruction.flow, target) {
                (Flow::Next, _) => {}
                (Flow::Branch(_), Some(target)) => starts.push(target),
                (Flow::Jump(_), Some(target)) => {
                    starts.push(target);
                    break;
                }
                (Flow::Return | Flow::Trap, _) => break,
                (Flow::Branch(_), None) => is_followed = false,
                (Flow::Jump(_), None) | (Flow::Call(_) | Flow::Indirect | Flow::Away, _) => {
                    is_followed = false;
                    break;
                }
            }
            at += instruction.length as u64;
        }
    }
    if is_followed { ArgumentUse::Unused } else { ArgumentUse::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Machine;

    fn uses(bytes: &[u8]) -> [ArgumentUse; 3] {
        let code = Code { machine: Machine::X86_64, bytes, entry: 0x1000 };
        [0, 1, 2].map(|argument| use_of(&code, argument))
    }

    #[test]
    fn register_that_is_read_first_is_an_argument() {
        use ArgumentUse::{Read, Unknown, Unused};
        // mov %rdx,%rdi; jmp away
        assert_eq!(uses(&[0x48, 0x89, 0xd7, 0xe9, 0, 1, 0, 0]), [Unused, Unknown, Read]);
        // xor %edx,%edx; cmp $16,%rsi; ret
        assert_eq!(uses(&[0x31, 0xd2, 0x48, 0x83, 0xfe, 0x10, 0xc3]), [Unused, Read, Unused]);
        // test %rdi,%rdi; je +4; mov %rsi,%rax; ret; mov %rdx,%rax; ret
        let branches = [0x48, 0x85, 0xff, 0x74, 4, 0x48, 0x89, 0xf0, 0xc3, 0x48, 0x89, 0xd0, 0xc3];
        assert_eq!(uses(&branches), [Read, Read, Read]);
        // push %rax; call away; pop %rcx; ret
        assert_eq!(uses(&[0x50, 0xe8, 0, 1, 0, 0, 0x59, 0xc3]), [Unknown; 3]);
        // jmp to itself
        assert_eq!(uses(&[0xeb, 0xfe]), [Unused; 3]);
        // A truncated instruction.
        assert_eq!(uses(&[0x48, 0x89]), [Unknown; 3]);
    }

    #[test]
    fn conditional_and_partial_writes_prove_nothing() {
        use ArgumentUse::{Read, Unknown, Unused};
        let writes: [&[u8]; 4] = [
            &[0x48, 0x0f, 0x44, 0xd0], // cmove %rax,%rdx
            &[0x48, 0x0f, 0xbc, 0xd0], // bsf %rax,%rdx
            &[0x0f, 0x94, 0xc2],       // sete %dl
            &[0xb2, 0x01],             // mov $1,%dl
        ];
        for write in writes {
            assert_eq!(uses(&[write, &[0xc3]].concat()), [Unused, Unused, Unknown], "{write:x?}");
        }
        // je +3; mov $1,%dl; ret; mov %rdx,%rax; ret
        assert_eq!(uses(&[0x74, 3, 0xb2, 0x01, 0xc3, 0x48, 0x89, 0xd0, 0xc3]), [Unused, Unused, Read]);
    }

    #[test]
    fn subtraction_of_a_register_from_itself_reads_nothing() {
        use ArgumentUse::{Read, Unused};
        // sbb %edx,%edx; ret
        assert_eq!(uses(&[0x19, 0xd2, 0xc3]), [Unused; 3]);
        // sbb %rdx,%rdx; ret
        assert_eq!(uses(&[0x48, 0x19, 0xd2, 0xc3]), [Unused; 3]);
        // sbb %edx,%esi; ret
        assert_eq!(uses(&[0x19, 0xd6, 0xc3]), [Unused, Read, Read]);
        // sbbl $0,(%rdx); ret
        assert_eq!(uses(&[0x83, 0x1a, 0, 0xc3]), [Unused, Unused, Read]);
    }

    #[test]
    fn uses_in_aarch64_are_not_known() {
        let code = Code { machine: Machine::Aarch64, bytes: &[0xc0, 0x03, 0x5f, 0xd6], entry: 0 };
        assert_eq!(use_of(&code, 0), ArgumentUse::Unknown);
    }
}
