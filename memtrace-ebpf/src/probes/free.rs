//! Functions that give up a block.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;

use crate::pending::{self, Entry};
use crate::thread::Thread;
use crate::{emit, maps, own_stack};

#[uprobe]
fn free_block0(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    let address: u64 = context.arg(0).unwrap_or(0);
    if address == 0 || !maps::gate_open() {
        return 0;
    }
    let thread = Thread::current();
    // SAFETY: at a uprobe the context is the user's registers.
    let stack_pointer = unsafe { (*context.regs).rsp };
    if pending::enter(&context, thread, stack_pointer) != Entry::Nested {
        emit::free(&context, thread, address);
    }
    0
}
