//! Keeps programs at uprobes on the stack of the interrupted thread.
//!
//! Since Linux 6.13 the stack of a kprobe program may be per-CPU memory (`bpf_enable_priv_stack`,
//! kernel/bpf/verifier.c; "Find eligible subprogs for private stack support"). Programs at uprobes have that type but
//! can be preempted (`bpf_prog_run_array_uprobe`, include/linux/bpf.h). The next program on that CPU then overwrites
//! the first one's stack, including its saved registers. A kernel with voluntary preemption alone does not show this. A
//! program with a tail call keeps the thread's stack (`check_max_stack_depth`), so each program has a tail call that it
//! never makes.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::ProgramArray;
use aya_ebpf::macros::btf_map;

use crate::settings;

#[btf_map]
static NOWHERE: ProgramArray<1> = ProgramArray::new();

/// Opts the calling program out of private stacks. Every program at a uprobe calls this.
///
/// The verifier sees that the condition is false and drops the call, after it has noted that there is one.
#[inline(always)]
pub fn opt_out(context: &impl EbpfContext) {
    if settings::never() {
        // SAFETY: it is never made.
        unsafe { NOWHERE.tail_call(context, 0) };
    }
}
