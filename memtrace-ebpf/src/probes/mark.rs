//! Functions that set marks.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::wire::MarkRecord;

use crate::thread::Thread;
use crate::{arguments, emit, gate, private_stack};

#[uprobe]
fn mark_entry(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        let function = arguments::cookie(&context).0 as u32;
        emit::mark(&context, MarkRecord { function, pid: Thread::current().pid });
    }
    0
}
