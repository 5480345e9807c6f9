//! Functions that free a block.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;

use crate::pending::{self, Call, EnteredCall, Entry, Pending};
use crate::thread::Thread;
use crate::{arguments, emit, gate, late_tags, loss, private_stack, registers};

/// Returns true if frees of the current process are recorded now, and counts the hit in this case. Calls with a null
/// pointer count too.
#[inline(always)]
fn count_hit(thread: Thread) -> bool {
    let is_recorded = gate::recorded(thread).frees();
    if is_recorded {
        loss::entry_hit();
    }
    is_recorded
}

#[inline(always)]
fn enter(context: &ProbeContext, address: u64) {
    let thread = Thread::current();
    if !count_hit(thread) || address == 0 {
        return;
    }
    let stack_pointer = registers::stack_pointer(registers::of(context));
    let EnteredCall { entry, frees_last_block } = pending::enter_free(context, thread, stack_pointer, address);
    match entry {
        Entry::Outermost | Entry::TailCall => free(context, thread, address, frees_last_block),
        Entry::Repeated => emit::repeated_free(context, thread, address),
        Entry::Nested => {}
    }
}

/// Records the free of a block. If the record of the allocation still waits for a tag, it is sent first.
#[inline(always)]
fn free(context: &ProbeContext, thread: Thread, address: u64, frees_last_block: bool) {
    late_tags::before_free(context, thread, address);
    emit::free(context, thread, address, frees_last_block);
}

/// Does the same as [`enter`], for a function that may call another function that frees. The return of the function is
/// probed too, so that frees inside the call count as nested.
#[inline(always)]
fn enter_around(context: &ProbeContext, address: u64) {
    let thread = Thread::current();
    if !count_hit(thread) || address == 0 {
        return;
    }
    let stack_pointer = registers::stack_pointer(registers::of(context));
    let pending = Pending { call: Call::Free, size: 0, aux: address, extra: 0 };
    match pending::begin(context, thread, stack_pointer, pending) {
        Some(EnteredCall { entry: Entry::Outermost, frees_last_block }) => {
            free(context, thread, address, frees_last_block);
        }
        Some(_) => {}
        // The thread has no slot. The free is recorded anyway, and nested frees will be recorded too.
        None => free(context, thread, address, false),
    }
}

/// Entry of a function that frees blocks again, such as the blocks that glibc's `free` put into the cache of an
/// exiting thread (malloc/malloc.c, `tcache_thread_shutdown`). Until the function returns, frees are recorded as
/// repeated.
#[uprobe]
fn repeat_frees(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let thread = Thread::current();
    if count_hit(thread) {
        let stack_pointer = registers::stack_pointer(registers::of(&context));
        let pending = Pending { call: Call::RepeatFrees, size: 0, aux: 0, extra: 0 };
        let _ = pending::begin(&context, thread, stack_pointer, pending);
    }
    0
}

#[uprobe]
fn free_block0(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, context.arg(0).unwrap_or(0));
    0
}

#[uprobe]
fn free_any(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let cookie = arguments::cookie(&context);
    enter(&context, arguments::argument(&context, cookie, 0).unwrap_or(0));
    0
}

#[uprobe]
fn free_around_block0(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter_around(&context, context.arg(0).unwrap_or(0));
    0
}

#[uprobe]
fn free_around_any(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let cookie = arguments::cookie(&context);
    enter_around(&context, arguments::argument(&context, cookie, 0).unwrap_or(0));
    0
}
