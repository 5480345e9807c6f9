//! x86-64 (System V ABI, AMD64 supplement).

use core::ptr::read_volatile;

use aya_ebpf::helpers::bpf_probe_read_user;
use memtrace_common::branch;
use memtrace_unwind::Machine;

pub use aya_ebpf::bindings::pt_regs as Registers;

/// This processor, for stack walks.
pub const MACHINE: Machine = Machine::X86_64;

/// Number of bytes that a return pops off the stack: the return address.
pub const POPPED_BY_RETURN: u64 = 8;

#[inline(always)]
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.rsp
}

/// Returns the address of the next instruction.
#[inline(always)]
pub fn instruction(registers: &Registers) -> u64 {
    registers.rip
}

/// Returns true if the thread takes the conditional jump at a probe. `condition`: the lowest four bits of its opcode.
#[inline(always)]
pub fn is_taken(registers: &Registers, condition: u32) -> bool {
    branch::is_taken(condition, registers.eflags)
}

/// Returns the result of a function.
#[inline(always)]
pub fn result(registers: &Registers) -> u64 {
    registers.rax
}

/// Reads registers.
///
/// The reads are volatile, because the compiler would turn a choice among them into one read at a computed offset,
/// which the verifier refuses for a context.
macro_rules! read {
    // SAFETY: a read of a borrowed field.
    ($registers:ident: $($register:ident)*) => { [$(unsafe { read_volatile(&raw const $registers.$register) }),*] };
}

/// Returns the six arguments that are passed in registers (3.2.3).
#[inline(always)]
pub fn arguments(registers: &Registers) -> [u64; 6] {
    read!(registers: rdi rsi rdx rcx r8 r9)
}

/// Returns the return address at a function's return instruction; 0 if it cannot be read.
#[inline(always)]
pub fn caller(registers: &Registers) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(registers.rsp as *const u64) }.unwrap_or(0)
}

/// Returns a register by its DWARF number below 16 (figure 3.36), with `stack_pointer` as the stack pointer.
#[inline(always)]
pub fn by_number(registers: &Registers, stack_pointer: u64, number: usize) -> u64 {
    match number {
        0 => registers.rax,
        1 => registers.rdx,
        2 => registers.rcx,
        3 => registers.rbx,
        4 => registers.rsi,
        5 => registers.rdi,
        6 => registers.rbp,
        7 => stack_pointer,
        8 => registers.r8,
        9 => registers.r9,
        10 => registers.r10,
        11 => registers.r11,
        12 => registers.r12,
        13 => registers.r13,
        14 => registers.r14,
        _ => registers.r15,
    }
}

/// Returns a general register by its DWARF number, which is not known before the probe is hit.
#[inline(always)]
pub fn general(registers: &Registers, number: usize) -> u64 {
    let [rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15] =
        read!(registers: rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15);
    match number {
        0 => rax,
        1 => rdx,
        2 => rcx,
        3 => rbx,
        4 => rsi,
        5 => rdi,
        6 => rbp,
        7 => rsp,
        8 => r8,
        9 => r9,
        10 => r10,
        11 => r11,
        12 => r12,
        13 => r13,
        14 => r14,
        _ => r15,
    }
}

/// System calls.
pub mod call {
    /// arch/x86/entry/syscalls/syscall_64.tbl
    pub mod number {
        pub const MMAP: u64 = 9;
        pub const MUNMAP: u64 = 11;
        pub const BRK: u64 = 12;
        pub const MREMAP: u64 = 25;
        pub const EXIT: u64 = 60;
        pub const FUTEX: u64 = 202;
        pub const EXIT_GROUP: u64 = 231;
    }

    /// Offsets in the kernel's `pt_regs` of the registers of a system call (A.2.1).
    pub mod offset {
        use core::mem::offset_of;

        use aya_ebpf::bindings::pt_regs;

        pub const NUMBER: u32 = offset_of!(pt_regs, orig_rax) as u32;
        pub const FIRST: u32 = offset_of!(pt_regs, rdi) as u32;
        pub const SECOND: u32 = offset_of!(pt_regs, rsi) as u32;
        pub const THIRD: u32 = offset_of!(pt_regs, rdx) as u32;
        pub const FOURTH: u32 = offset_of!(pt_regs, r10) as u32;
        pub const MODE: u32 = offset_of!(pt_regs, cs) as u32;
        pub const INSTRUCTION: u32 = offset_of!(pt_regs, rip) as u32;
    }

    /// Code segment of 64-bit executables (`__USER_CS`, arch/x86/include/asm/segment.h).
    const USER_CODE: u64 = 0x33;

    /// Returns true for a call of a 64-bit executable; `mode` is the word at [`offset::MODE`].
    #[inline(always)]
    pub fn is_native(mode: u64) -> bool {
        mode == USER_CODE
    }
}
