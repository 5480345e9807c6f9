//! Registers of the thread that a probe has interrupted. No other file depends on the processor.
//!
//! The processor is not the target of the build: `bpf_target_arch` names it, as in aya-ebpf.

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
    MACHINE, POPPED_BY_RETURN, Registers, arguments, by_number, call, caller, instruction, result, stack_pointer,
};

/// Returns the registers from the context of a program at a uprobe.
#[inline(always)]
pub fn of(context: &impl EbpfContext) -> &Registers {
    // SAFETY: at a uprobe the context is the user's registers.
    unsafe { &*context.as_ptr().cast() }
}
