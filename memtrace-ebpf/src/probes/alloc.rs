//! Functions that return a block: malloc, calloc, aligned_alloc, posix_memalign and similar ones.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::wire::gate as values;

use crate::pending::{self, Call, Pending};
use crate::thread::Thread;
use crate::{arguments, call_rate, gate, loss, private_stack, registers};

#[inline(always)]
fn enter(context: &ProbeContext, call: Call, size: u64, aux: u64, extra: u64) {
    let thread = Thread::current();
    match gate::of(thread) {
        values::OPEN => {
            loss::entry_hit();
            let stack_pointer = registers::stack_pointer(registers::of(context));
            let _ = pending::begin(context, thread, stack_pointer, Pending { call, size, aux, extra });
        }
        values::CALL_RATE => call_rate::count(size),
        _ => {}
    }
}

#[inline(always)]
fn argument(context: &ProbeContext, index: usize) -> u64 {
    context.arg(index).unwrap_or(0)
}

#[uprobe]
fn alloc_size0(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, Call::Alloc, argument(&context, 0), 0, 0);
    0
}

#[uprobe]
fn alloc_size1(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, Call::Alloc, argument(&context, 1), 0, 0);
    0
}

#[uprobe]
fn alloc_pages0(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, Call::Alloc, argument(&context, 0), 0, pending::ROUNDS_TO_PAGES);
    0
}

#[uprobe]
fn alloc_product01(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    // If the product overflows, the call fails and the size is not used.
    let size = argument(&context, 0).wrapping_mul(argument(&context, 1));
    enter(&context, Call::Alloc, size, 0, 0);
    0
}

#[uprobe]
fn alloc_product12(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let size = argument(&context, 1).wrapping_mul(argument(&context, 2));
    enter(&context, Call::Alloc, size, 0, 0);
    0
}

#[uprobe]
fn alloc_out0_size2(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, Call::AllocOut, argument(&context, 2), argument(&context, 0), 0);
    0
}

#[uprobe]
fn alloc_any(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let cookie = arguments::cookie(&context);
    match arguments::argument(&context, cookie, 2) {
        Some(out) => enter(&context, Call::AllocOut, arguments::size(&context, cookie), out, 0),
        None => enter(&context, Call::Alloc, arguments::size(&context, cookie), 0, 0),
    }
    0
}

/// Entry of a function that an allocating function calls after it has failed, to get the new handler or to throw an
/// exception.
#[uprobe]
fn alloc_failure(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let thread = Thread::current();
    if gate::recorded(thread).frees() {
        loss::entry_hit();
        pending::interrupt_failed(&context, thread, registers::stack_pointer(registers::of(&context)));
    }
    0
}
