//! arm64, as the Procedure Call Standard for the Arm 64-bit Architecture has it.

use core::ptr::read_volatile;

pub use aya_ebpf::bindings::user_pt_regs as Registers;

/// How many bytes the stack is shorter when a function has returned than when it was entered: none, since the return
/// address is in a register.
pub const POPPED_BY_RETURN: u64 = 0;

const FRAME_POINTER: usize = 29;
const LINK: usize = 30;

#[inline(always)]
pub fn stack_pointer(registers: &Registers) -> u64 {
    registers.sp
}

/// The instruction that is run next.
#[inline(always)]
pub fn instruction(registers: &Registers) -> u64 {
    registers.pc
}

/// What a function has returned.
#[inline(always)]
pub fn result(registers: &Registers) -> u64 {
    registers.regs[0]
}

/// The arguments that programs look at, of those that are passed in registers (6.4.2).
///
/// Volatile, since the verifier refuses a context at a distance that is chosen at run time, which the compiler would else
/// make of a choice among them.
#[inline(always)]
pub fn arguments(registers: &Registers) -> [u64; 6] {
    macro_rules! read {
        // SAFETY: a read of what is borrowed.
        ($($number:literal)*) => { [$(unsafe { read_volatile(&raw const registers.regs[$number]) }),*] };
    }
    read!(0 1 2 3 4 5)
}

/// Where a function returns to whose return instruction is run next.
#[inline(always)]
pub fn caller(registers: &Registers) -> u64 {
    registers.regs[LINK]
}

/// A register as the walk numbers them, which are those of x86-64: the frame pointer, the stack pointer, which is
/// `stack_pointer`, and others that are known in a leaf only.
#[inline(always)]
pub fn by_number(registers: &Registers, stack_pointer: u64, number: usize) -> u64 {
    match number {
        6 => registers.regs[FRAME_POINTER],
        7 => stack_pointer,
        other => registers.regs[other & 15],
    }
}

/// System calls.
pub mod call {
    /// include/uapi/asm-generic/unistd.h
    pub mod number {
        pub const BRK: u64 = 214;
        pub const MUNMAP: u64 = 215;
        pub const MREMAP: u64 = 216;
        pub const MMAP: u64 = 222;
    }

    /// Where a call's registers lie in the kernel's `pt_regs` (arch/arm64/include/asm/ptrace.h): those of the user first, and
    /// behind them what the first was before the result took its place.
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

    /// A 32-bit program runs (`PSR_MODE32_BIT`, arch/arm64/include/uapi/asm/ptrace.h).
    const NARROW: u64 = 0x10;

    /// Whether it is a 64-bit program's, `mode` being what lies at [`offset::MODE`].
    #[inline(always)]
    pub fn is_native(mode: u64) -> bool {
        mode & NARROW == 0
    }
}
