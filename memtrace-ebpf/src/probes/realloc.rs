//! Functions that exchange a block for another.
//!
//! The old block is given up when the call begins: from then on another thread may be handed its address. Should the call
//! fail, its return takes the block back.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;

use crate::pending::{self, Call, Entry, Pending};
use crate::thread::Thread;
use crate::{emit, maps, own_stack};

#[inline(always)]
fn enter(context: &ProbeContext, old: u64, size: u64) {
    if !maps::gate_open() {
        return;
    }
    let thread = Thread::current();
    // SAFETY: at a uprobe the context is the user's registers.
    let stack_pointer = unsafe { (*context.regs).rsp };
    let pending = Pending { call: Call::Realloc, size, aux: old };
    if pending::begin(context, thread, stack_pointer, pending) == Some(Entry::Outermost) && old != 0 {
        emit::park(context, thread, old);
    }
}

#[uprobe]
fn realloc_old0_size1(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    enter(&context, context.arg(0).unwrap_or(0), context.arg(1).unwrap_or(0));
    0
}

#[uprobe]
fn realloc_old0_product12(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    let count: u64 = context.arg(1).unwrap_or(0);
    let size: u64 = context.arg(2).unwrap_or(0);
    // An overflowing call fails and keeps its block; its wrapped product must only not read as 0, which would mean a free.
    let product = if count == 0 || size == 0 { 0 } else { count.wrapping_mul(size).max(1) };
    enter(&context, context.arg(0).unwrap_or(0), product);
    0
}
