//! Call instructions, read backwards from a return address.

use memtrace_common::unwind::cfa;

use crate::{Kind, Machine, Memory, Table};

/// Result of [`target`] for bytes that are no call instruction.
const NO_CALL: u64 = 0;
/// Result of [`target`] for a call through a register or memory.
const INDIRECT: u64 = 1;

/// Returns the target of the call instruction before `return_address`: an address, [`INDIRECT`] or [`NO_CALL`].
/// `before` has the eight bytes before the return address.
///
/// The result is one word that always has a value. With an enum, the compiler could save uninitialised fields, which
/// the verifier refuses.
#[inline(always)]
#[must_use]
const fn target(machine: Machine, before: u64, return_address: u64) -> u64 {
    match machine {
        Machine::X86_64 => x86_64(before, return_address),
        Machine::Aarch64 => aarch64((before >> 32) as u32, return_address),
    }
}

/// Decodes a call of x86-64. `call rel32` is E8 and the distance. `call r/m64` is FF and a ModR/M byte with 2 in its reg field.
/// The ModR/M byte determines the length (Intel SDM, volume 2, "CALL" and table 2-2).
#[inline(always)]
const fn x86_64(before: u64, return_address: u64) -> u64 {
    if byte(before, 5) == 0xe8 {
        let distance = (before >> 32) as u32;
        return return_address.wrapping_add_signed(distance.cast_signed() as i64);
    }
    // The arguments are the length in bytes, the mod field, and 1 if there is a SIB byte. In mod 0, the value 5 in rm
    // or in the SIB base means a 32-bit displacement.
    let is_call = is_indirect(before, 2, 3, 0)
        || is_indirect(before, 2, 0, 0)
        || is_indirect(before, 3, 1, 0)
        || is_indirect(before, 3, 0, 1)
        || is_indirect(before, 4, 1, 1)
        || is_indirect(before, 6, 2, 0)
        || byte(before, 6) == 0xff && byte(before, 5) == 0x15
        || is_indirect(before, 7, 2, 1)
        || is_indirect(before, 7, 0, 1);
    if is_call { INDIRECT } else { NO_CALL }
}

/// Returns true if the last `length` bytes are FF and a ModR/M byte with this `mode` and, if `sib` is 1, a SIB byte.
#[inline(always)]
const fn is_indirect(before: u64, length: u32, mode: u64, sib: u64) -> bool {
    let modrm = byte(before, length - 1);
    // In mode 3 all values name a register.
    let sib_matches = mode == 3 || (modrm & 7 == 4) == (sib == 1);
    byte(before, length) == 0xff && modrm >> 3 == mode << 3 | 2 && sib_matches
}

/// Returns the byte that is `distance` bytes before the return address.
#[inline(always)]
const fn byte(before: u64, distance: u32) -> u64 {
    before >> (64 - 8 * distance) & 0xff
}

/// Decodes a call of aarch64. `BL` has a distance of 26 bits in units of 4 bytes; `BLR`, `BLRAA` and their variants
/// have a register (Arm Architecture Reference Manual, C6.2).
#[inline(always)]
const fn aarch64(instruction: u32, return_address: u64) -> u64 {
    if instruction >> 26 == 0b10_0101 {
        let distance = (instruction << 6).cast_signed() >> 4;
        return return_address.wrapping_sub(4).wrapping_add_signed(distance as i64);
    }
    if instruction & 0xfeff_f000 == 0xd63f_0000 { INDIRECT } else { NO_CALL }
}

/// Returns true if `start`, the first bytes of a function, is a jump to an address that is read from memory, as in an entry of a
/// PLT (System V ABI, AMD64 supplement, section 5.2): `jmp *rel32(%rip)`, with or without `bnd` and `endbr64` before it.
#[inline(always)]
#[must_use]
const fn is_jump_through_memory(start: u64) -> bool {
    const ENDBR64: u64 = 0xfa1e_0ff3;
    let code = if start & 0xffff_ffff == ENDBR64 { start >> 32 } else { start };
    let code = if code & 0xff == 0xf2 { code >> 8 } else { code };
    code & 0xffff == 0x25ff
}

/// Returns true if code without rows can return to `address`: the instruction before `address` is a call that can lead to such
/// code. In JIT code any address can be a return address, because HotSpot's interpreter pushes return addresses and jumps
/// (`prepare_invoke`, src/hotspot/cpu/x86/templateTable_x86.cpp).
#[inline(always)]
pub(crate) fn can_return_to(address: u64, memory: &mut impl Memory, table: &mut impl Table) -> bool {
    let Some(before) = memory.code(address.wrapping_sub(8)) else { return false };
    let called = target(memory.machine(), before, address);
    if called == INDIRECT {
        return true;
    }
    let found = table.lookup(if called == NO_CALL { address.wrapping_sub(1) } else { called });
    if called == NO_CALL {
        // In the outermost function, no call is needed either: the first function of a goroutine returns to the
        // second instruction of `runtime.goexit` (`newproc1`, src/runtime/proc.go of Go).
        return found.kind == Kind::Generated || found.rule.cfa_kind == cfa::END;
    }
    // The called address has a rule if it is a PLT entry. The entry only jumps to the function, which may have no rows.
    found.kind != Kind::Rule
        || matches!(found.rule.cfa_kind, cfa::NONE | cfa::PLT)
        || memory.code(called).is_some_and(is_jump_through_memory)
}

/// Returns true if any code can return to `address`. Unlike in [`can_return_to`], the call before `address` may also lead
/// to code with rows.
#[inline(always)]
pub(crate) fn follows_call(address: u64, memory: &mut impl Memory, table: &mut impl Table) -> bool {
    let Some(before) = memory.code(address.wrapping_sub(8)) else { return false };
    if target(memory.machine(), before, address) != NO_CALL {
        return true;
    }
    let found = table.lookup(address.wrapping_sub(1));
    found.kind == Kind::Generated || found.rule.cfa_kind == cfa::END
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: u64 = 0x5000_0000;

    /// Returns the target of `instruction`, which follows `nop` instructions.
    fn target_of(machine: Machine, instruction: &[u8]) -> u64 {
        let mut before = [0x90; 8];
        before[8 - instruction.len()..].copy_from_slice(instruction);
        target(machine, u64::from_le_bytes(before), RETURN)
    }

    #[test]
    fn direct_calls_have_a_target() {
        assert_eq!(target_of(Machine::X86_64, &[0xe8, 0x10, 0, 0, 0]), RETURN + 0x10);
        assert_eq!(target_of(Machine::X86_64, &[0xe8, 0xf0, 0xff, 0xff, 0xff]), RETURN - 0x10);
        // bl .+0x10 and bl .-0x10, as GNU as encodes them.
        assert_eq!(target_of(Machine::Aarch64, &0x9400_0004u32.to_le_bytes()), RETURN - 4 + 0x10);
        assert_eq!(target_of(Machine::Aarch64, &0x97ff_fffcu32.to_le_bytes()), RETURN - 4 - 0x10);
    }

    #[test]
    fn calls_through_registers_and_memory_are_indirect() {
        // As GNU as encodes them.
        let calls: [&[u8]; 17] = [
            &[0xff, 0xd0],                               // call *%rax
            &[0x41, 0xff, 0xd4],                         // call *%r12
            &[0xff, 0xd4],                               // call *%rsp
            &[0xff, 0x13],                               // call *(%rbx)
            &[0xff, 0x14, 0x24],                         // call *(%rsp)
            &[0xff, 0x53, 0x18],                         // call *0x18(%rbx)
            &[0xff, 0x55, 0x00],                         // call *(%rbp)
            &[0xff, 0x54, 0x24, 0x08],                   // call *8(%rsp)
            &[0x41, 0xff, 0x54, 0xc5, 0x08],             // call *8(%r13,%rax,8)
            &[0x41, 0xff, 0x95, 0x00, 0x10, 0, 0],       // call *0x1000(%r13)
            &[0xff, 0x15, 0x00, 0x10, 0, 0],             // call *0x1000(%rip)
            &[0xff, 0x90, 0x00, 0x01, 0, 0],             // call *0x100(%rax)
            &[0xff, 0x94, 0xc3, 0x00, 0x01, 0, 0],       // call *0x100(%rbx,%rax,8)
            &[0x41, 0xff, 0x94, 0x24, 0x00, 0x01, 0, 0], // call *0x100(%r12)
            &[0xff, 0x14, 0xc5, 0x00, 0x10, 0, 0],       // call *0x1000(,%rax,8)
            &[0x42, 0xff, 0x14, 0xe3],                   // call *(%rbx,%r12,8)
            &[0xff, 0x14, 0x25, 0x00, 0x10, 0, 0],       // call *0x1000
        ];
        for call in calls {
            assert_eq!(target_of(Machine::X86_64, call), INDIRECT, "{call:x?}");
        }
        // blr x0, blr x30, blraaz x1, blraa x1, x2
        for call in [0xd63f_0000u32, 0xd63f_03c0, 0xd63f_083f, 0xd73f_0822] {
            assert_eq!(target_of(Machine::Aarch64, &call.to_le_bytes()), INDIRECT, "{call:x}");
        }
    }

    #[test]
    fn other_instructions_are_no_calls() {
        let others: [&[u8]; 9] = [
            &[],
            &[0xff, 0xe0],                   // jmp *%rax
            &[0xff, 0x25, 0x00, 0x10, 0, 0], // jmp *0x1000(%rip)
            &[0xff, 0x14],                   // part of a call with a SIB byte
            &[0xff, 0x54, 0x24],             // part of a call with a displacement
            &[0xff, 0xc0],                   // inc %eax
            &[0xff, 0x75, 0x08],             // push 8(%rbp)
            &[0xe9, 0x10, 0, 0, 0],          // jmp .+0x15
            &[0xc3],
        ];
        for other in others {
            assert_eq!(target_of(Machine::X86_64, other), NO_CALL, "{other:x?}");
        }
        // b, br x0, ret
        for other in [0x1400_0004u32, 0xd61f_0000, 0xd65f_03c0] {
            assert_eq!(target_of(Machine::Aarch64, &other.to_le_bytes()), NO_CALL, "{other:x}");
        }
    }

    #[test]
    fn entries_of_a_plt_jump_through_memory() {
        let starts: [(&[u8; 8], bool); 6] = [
            (&[0xff, 0x25, 1, 2, 3, 4, 0x68, 0], true),
            (&[0xf2, 0xff, 0x25, 1, 2, 3, 4, 0x0f], true),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 1, 2], true),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1], true),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5], false),
            (&[0x55, 0x48, 0x89, 0xe5, 0xff, 0x25, 1, 2], false),
        ];
        for (start, expected) in starts {
            assert_eq!(is_jump_through_memory(u64::from_le_bytes(*start)), expected, "{start:x?}");
        }
    }
}
