//! The registers of the thread that a probe has interrupted: the one place that knows which processor it runs on.
//!
//! That is not BPF's, and is said when the object is built (`bpf_target_arch`, as aya-ebpf has it too).

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
    POPPED_BY_RETURN, Registers, arguments, by_number, call, caller, instruction, result, stack_pointer,
};

/// Those that a program at a uprobe was given.
#[inline(always)]
pub fn of(context: &impl EbpfContext) -> &Registers {
    // SAFETY: at a uprobe the context is the user's registers.
    unsafe { &*context.as_ptr().cast() }
}
