//! Keeps programs at uprobes on the stack of the interrupted thread.
//!
//! Since Linux 6.13 the stack of a kprobe program may be per-CPU memory (`bpf_enable_priv_stack`,
//! kernel/bpf/verifier.c; "Find eligible subprogs for private stack support"). Programs at uprobes have the type
//! kprobe but can be preempted (`bpf_prog_run_array_uprobe`, include/linux/bpf.h). The next program on that CPU then
//! overwrites the stack of the preempted one, including its saved registers. Kernels that only have voluntary
//! preemption are not affected. A program with a tail call keeps the thread's stack (`check_max_stack_depth`), so
//! each program has a tail call that it never makes.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::ProgramArray;
use aya_ebpf::macros::btf_map;

use crate::settings;

#[btf_map]
static NOWHERE: ProgramArray<1> = ProgramArray::new();

/// Opts the calling program out of private stacks. Every program at a uprobe calls this function.
///
/// The verifier notes that the program has a tail call, before it sees that the condition is false and drops the
/// call.
#[inline(always)]
pub fn opt_out(context: &impl EbpfContext) {
    if settings::never() {
        // SAFETY: the call is never made.
        unsafe { NOWHERE.tail_call(context, 0) };
    }
}
