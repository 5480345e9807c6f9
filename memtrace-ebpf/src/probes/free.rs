//! Functions that free a block.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;

use crate::pending::{self, Call, Entry, Pending};
use crate::thread::Thread;
use crate::{arguments, emit, gate, private_stack, registers};

#[inline(always)]
fn enter(context: &ProbeContext, address: u64) {
    if address == 0 || !gate::is_open_for_current() {
        return;
    }
    let thread = Thread::current();
    let stack_pointer = registers::stack_pointer(registers::of(context));
    if pending::enter_free(context, thread, stack_pointer, address) != Entry::Nested {
        emit::free(context, thread, address);
    }
}

/// As [`enter`], for a function that may call other frees. Its return is probed, so that those count as nested.
#[inline(always)]
fn enter_around(context: &ProbeContext, address: u64) {
    if address == 0 || !gate::is_open_for_current() {
        return;
    }
    let thread = Thread::current();
    let stack_pointer = registers::stack_pointer(registers::of(context));
    let pending = Pending { call: Call::Free, size: 0, aux: address, extra: 0 };
    match pending::begin(context, thread, stack_pointer, pending) {
        Some(Entry::Outermost) => emit::free(context, thread, address),
        Some(Entry::TailCall | Entry::Nested) => {}
        // The free is recorded anyway; nested calls will be recorded too.
        None => emit::free(context, thread, address),
    }
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
