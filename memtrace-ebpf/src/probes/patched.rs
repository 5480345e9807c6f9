//! Instructions of the stub in a patched process. A thread reaches them only with a sampled block.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::wire::UNTAGGED;

use crate::origin::{Caller, Returning};
use crate::registers::POPPED_BY_RETURN;
use crate::thread::Thread;
use crate::{emit, gate, loss, private_stack, process_filter, registers, sampled, settings, size_filter, stack, tags};

/// Return of an allocating function to its caller. The preserved registers have the values of the caller.
#[uprobe]
fn patched_alloc(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::count_hit_for_current() {
        record(&context, Thread::current());
    }
    0
}

#[inline(always)]
fn record(context: &ProbeContext, thread: Thread) {
    let Some(block) = sampled::patched_block(context) else { return };
    if !size_filter::is_recorded(block.size) || !process_filter::is_thread_recorded() {
        loss::filtered(block.size);
        return;
    }
    let registers = registers::of(context);
    let stack_pointer = registers::stack_pointer(registers).wrapping_add(POPPED_BY_RETURN);
    let caller = Caller { ip: registers::caller(registers), stack_pointer };
    let ring = emit::ring_for(thread, block.address);
    let stack = stack::take(context, &Returning { registers, caller }, thread, ring);
    let tag = if settings::records_tags() { tags::current(thread) } else { UNTAGGED };
    emit::sampled_alloc(context, ring, thread, tag as u16, block, stack);
}

/// A realloc begins, and frees a sampled block unless it fails. Another thread can get the address of the old block
/// before the realloc returns.
#[uprobe]
fn patched_tentative(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let thread = Thread::current();
    if let Some(address) = replaced(&context, thread) {
        emit::tentative_free(&context, thread, address, false);
    }
    0
}

/// The realloc has failed, and keeps its block.
#[uprobe]
fn patched_undo(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let thread = Thread::current();
    if let Some(address) = replaced(&context, thread) {
        emit::undo_free(&context, thread, address);
    }
    0
}

/// Returns the address of the old block of a realloc, if frees of the process are recorded now.
#[inline(always)]
fn replaced(context: &ProbeContext, thread: Thread) -> Option<u64> {
    if !gate::recorded(thread).frees() {
        return None;
    }
    loss::other_hit();
    sampled::freed(context, thread)
}
