//! arm64 (Procedure Call Standard for the Arm 64-bit Architecture).

use core::ptr::read_volatile;

use aya_ebpf::helpers::bpf_probe_read_kernel;
use memtrace_unwind::Machine;

pub use aya_ebpf::bindings::user_pt_regs as Registers;

/// This processor, for stack walks.
pub const MACHINE: Machine = Machine::Aarch64;

/// Number of bytes that a return pops off the stack: none, because the return address is in a register.
pub const POPPED_BY_RETURN: u64 = 0;

const FRAME_POINTER: usize = 29;
const LINK: usize = 30;

#[inline(always)]
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.sp
}

/// Returns the address of the next instruction.
#[inline(always)]
pub fn instruction(registers: &Registers) -> u64 {
    registers.pc
}

/// Returns true: no probe is at a conditional jump of arm64.
#[inline(always)]
pub fn is_taken(_registers: &Registers, _condition: u32) -> bool {
    true
}

/// Returns the result of a function.
#[inline(always)]
pub fn result(registers: &Registers) -> u64 {
    registers.regs[0]
}

/// Returns the first six arguments (6.4.2).
///
/// The reads are volatile, because the compiler would turn a choice among them into one read at a computed offset,
/// which the verifier refuses for a context.
#[inline(always)]
pub fn arguments(registers: &Registers) -> [u64; 6] {
    macro_rules! read {
        // SAFETY: a read of a borrowed field.
        ($($number:literal)*) => { [$(unsafe { read_volatile(&raw const registers.regs[$number]) }),*] };
    }
    read!(0 1 2 3 4 5)
}

/// Returns the return address at a function's return instruction.
#[inline(always)]
pub fn caller(registers: &Registers) -> u64 {
    registers.regs[LINK]
}

/// Returns a register by its number in the walk, which uses the numbers of x86-64: 6 is the frame pointer and 7 the
/// stack pointer, here `stack_pointer`. Other numbers are DWARF numbers of aarch64. The values of these registers are
/// known in a leaf frame only.
#[inline(always)]
pub fn by_number(registers: &Registers, stack_pointer: u64, number: usize) -> u64 {
    match number {
        6 => registers.regs[FRAME_POINTER],
        7 => stack_pointer,
        // The verifier refuses a read of a context at a computed offset, so a helper reads the register.
        // SAFETY: the read of a borrowed field cannot fail.
        other => unsafe { bpf_probe_read_kernel(&raw const registers.regs[other & 15]) }.unwrap_or(0),
    }
}

/// Returns a general register by its DWARF number. Number 31 is the stack pointer, which follows the registers 0 to 30.
#[inline(always)]
pub fn general(registers: &Registers, number: usize) -> u64 {
    let first = (&raw const registers.regs).cast::<u64>();
    // SAFETY: 32 words are in bounds of the registers, and the read of one of them cannot fail.
    unsafe { bpf_probe_read_kernel(first.add(number & 31)) }.unwrap_or(0)
}

/// System calls.
pub mod call {
    /// include/uapi/asm-generic/unistd.h
    pub mod number {
        pub const EXIT: u64 = 93;
        pub const EXIT_GROUP: u64 = 94;
        pub const FUTEX: u64 = 98;
        pub const BRK: u64 = 214;
        pub const MUNMAP: u64 = 215;
        pub const MREMAP: u64 = 216;
        pub const MMAP: u64 = 222;
    }

    /// Offsets in the kernel's `pt_regs` (arch/arm64/include/asm/ptrace.h) of the registers of a system call. The
    /// user registers come first, then `orig_x0`: the first argument, which the result replaces in x0.
    pub mod offset {
        use core::mem::offset_of;

        use aya_ebpf::bindings::user_pt_regs;

        const REGISTERS: u32 = offset_of!(user_pt_regs, regs) as u32;

        pub const NUMBER: u32 = REGISTERS + 8 * 8;
        pub const FIRST: u32 = size_of::<user_pt_regs>() as u32;
        pub const SECOND: u32 = REGISTERS + 8;
        pub const THIRD: u32 = REGISTERS + 2 * 8;
        pub const FOURTH: u32 = REGISTERS + 3 * 8;
        pub const MODE: u32 = offset_of!(user_pt_regs, pstate) as u32;
        pub const INSTRUCTION: u32 = offset_of!(user_pt_regs, pc) as u32;
    }

    /// Bit of the processor state in 32-bit executables (arch/arm64/include/uapi/asm/ptrace.h).
    const PSR_MODE32_BIT: u64 = 0x10;

    /// Returns true for a call of a 64-bit executable; `mode` is the word at [`offset::MODE`].
    #[inline(always)]
    pub fn is_native(mode: u64) -> bool {
        mode & PSR_MODE32_BIT == 0
    }
}
