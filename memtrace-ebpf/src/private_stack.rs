//! Keeps probes on the stack of the thread that they interrupt.
//!
//! Since Linux 6.13 the stack of a kprobe program may be memory of the processor instead (`bpf_enable_priv_stack`,
//! kernel/bpf/verifier.c; "Find eligible subprogs for private stack support"). Programs at uprobes are of that type, but
//! can be preempted (`bpf_prog_run_array_uprobe`, include/linux/bpf.h), and then the next one on that processor writes
//! over the stack of the first: its registers that were put aside, and all else in it. A kernel that is preempted
//! voluntarily alone does not show it. Programs with a tail call keep the thread's stack (`check_max_stack_depth`), so each
//! has one that is never made.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::ProgramArray;
use aya_ebpf::macros::btf_map;

use crate::settings;

#[btf_map]
static NOWHERE: ProgramArray<1> = ProgramArray::new();

/// To be called by every program at a uprobe. The verifier sees the condition to be false, and drops the call; that there
/// was one it knows from before.
#[inline(always)]
pub fn opt_out(context: &impl EbpfContext) {
    if settings::never() {
        // SAFETY: it is never made.
        unsafe { NOWHERE.tail_call(context, 0) };
    }
}
