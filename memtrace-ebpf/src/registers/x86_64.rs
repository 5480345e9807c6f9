//! x86-64, as the System V ABI's AMD64 supplement has it.

use core::ptr::read_volatile;

use aya_ebpf::helpers::bpf_probe_read_user;

pub use aya_ebpf::bindings::pt_regs as Registers;

/// How many bytes the stack is shorter when a function has returned than when it was entered: its return address.
pub const POPPED_BY_RETURN: u64 = 8;

#[inline(always)]
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.rsp
}

/// The instruction that is run next.
#[inline(always)]
pub fn instruction(registers: &Registers) -> u64 {
    registers.rip
}

/// What a function has returned.
#[inline(always)]
pub fn result(registers: &Registers) -> u64 {
    registers.rax
}

/// The arguments that are passed in registers (3.2.3).
///
/// Volatile, since the verifier refuses a context at a distance that is chosen at run time, which the compiler would else
/// make of a choice among them.
#[inline(always)]
pub fn arguments(registers: &Registers) -> [u64; 6] {
    macro_rules! read {
        // SAFETY: a read of what is borrowed.
        ($($register:ident)*) => { [$(unsafe { read_volatile(&raw const registers.$register) }),*] };
    }
    read!(rdi rsi rdx rcx r8 r9)
}

/// Where a function returns to whose return instruction is run next; 0 where that cannot be read.
#[inline(always)]
pub fn caller(registers: &Registers) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(registers.rsp as *const u64) }.unwrap_or(0)
}

/// A register by DWARF's number below 16 (figure 3.36), where the stack pointer is `stack_pointer`.
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

/// System calls.
pub mod call {
    /// arch/x86/entry/syscalls/syscall_64.tbl
    pub mod number {
        pub const MMAP: u64 = 9;
        pub const MUNMAP: u64 = 11;
        pub const BRK: u64 = 12;
        pub const MREMAP: u64 = 25;
    }

    /// Where a call's registers lie in the kernel's `pt_regs` (A.2.1).
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

    /// The code segment of 64-bit programs (`__USER_CS`, arch/x86/include/asm/segment.h).
    const USER_CODE: u64 = 0x33;

    /// Whether it is a 64-bit program's, `mode` being what lies at [`offset::MODE`].
    #[inline(always)]
    pub fn is_native(mode: u64) -> bool {
        mode == USER_CODE
    }
}
