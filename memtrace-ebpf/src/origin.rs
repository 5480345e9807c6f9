//! The frame and registers that a stack walk starts from.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs};
use memtrace_unwind::{InitialRegisters, Window};

use crate::registers::{self, Registers};

/// The frame that a function returns to.
#[derive(Clone, Copy)]
pub struct Caller {
    pub ip: u64,
    /// Stack pointer after the return.
    pub stack_pointer: u64,
}

/// Start of a stack walk.
pub trait Origin {
    /// Returns the first frame. `registers` is memory for a copy of the registers, and `window` for words of the stack.
    fn begin<'copy>(
        &'copy self,
        registers: &'copy mut MaybeUninit<Registers>,
        window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy;
}

/// A function that returns with these registers.
pub struct Returning<'context> {
    pub registers: &'context Registers,
    pub caller: Caller,
}

/// A thread that was interrupted or entered the kernel.
pub struct Interrupted {
    /// Kernel address of its registers.
    pub registers: u64,
}

impl Interrupted {
    /// Returns the current thread, with the registers with which it entered the kernel (Linux 5.15).
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the task is the current one, as the helper requires.
        Self { registers: unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64 }
    }
}

impl Origin for Returning<'_> {
    #[inline(always)]
    fn begin<'copy>(
        &'copy self,
        _registers: &'copy mut MaybeUninit<Registers>,
        _window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy {
        AtReturn { registers: self.registers, caller: self.caller }
    }
}

impl Origin for Interrupted {
    #[inline(always)]
    fn begin<'copy>(
        &'copy self,
        registers: &'copy mut MaybeUninit<Registers>,
        _window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy {
        // SAFETY: the helper writes the size of the registers; it writes zeros if it cannot read.
        unsafe {
            bpf_probe_read_kernel(
                registers.as_mut_ptr().cast(),
                size_of::<Registers>() as u32,
                self.registers as *const c_void,
            );
        }
        // SAFETY: it has been written, and any bits are registers.
        AtInstruction { registers: unsafe { registers.assume_init_ref() } }
    }
}

/// A frame after the call that returns to it.
struct AtReturn<'context> {
    registers: &'context Registers,
    caller: Caller,
}

/// A frame before its next instruction.
struct AtInstruction<'copy> {
    registers: &'copy Registers,
}

impl InitialRegisters for AtInstruction<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        registers::instruction(self.registers)
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        false
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, registers::stack_pointer(self.registers), number)
    }
}

impl InitialRegisters for AtReturn<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        self.caller.ip
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        true
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, self.caller.stack_pointer, number)
    }
}
