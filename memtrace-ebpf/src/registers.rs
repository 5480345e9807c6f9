//! Registers of the thread that a probe has interrupted. No other module depends on the processor.
//!
//! The build target is BPF, so `bpf_target_arch` names the processor, as in aya-ebpf.

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64;
#[cfg(bpf_target_arch = "x86_64")]
mod x86_64;

use aya_ebpf::EbpfContext;

#[cfg(bpf_target_arch = "aarch64")]
use self::aarch64 as machine;
#[cfg(bpf_target_arch = "x86_64")]
use self::x86_64 as machine;

pub use machine::{
    MACHINE, POPPED_BY_RETURN, Registers, arguments, by_number, call, caller, general, instruction, is_taken, result,
    stack_pointer,
};

/// Returns the user registers from the context of a program at a uprobe.
#[inline(always)]
pub fn of(context: &impl EbpfContext) -> &Registers {
    // SAFETY: the context of a program at a uprobe is the `pt_regs` of the thread.
    unsafe { &*context.as_ptr().cast() }
}
