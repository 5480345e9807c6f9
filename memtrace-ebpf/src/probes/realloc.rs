//! Functions that replace a block by another one, or resize it in place.
//!
//! The old block is tentatively freed at the entry of the call, because another thread may get its address before the
//! call returns. If the call fails, the free is undone.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;

use crate::pending::{self, Call, EnteredCall, Entry, Pending};
use crate::thread::Thread;
use crate::{arguments, emit, gate, late_tags, loss, private_stack, registers};

#[inline(always)]
fn enter(context: &ProbeContext, old: u64, size: u64) {
    begin(context, Pending { call: Call::Realloc, size, aux: old, extra: 0 });
}

#[inline(always)]
fn begin(context: &ProbeContext, pending: Pending) {
    let thread = Thread::current();
    if !gate::recorded(thread).frees() {
        return;
    }
    loss::entry_hit();
    let stack_pointer = registers::stack_pointer(registers::of(context));
    if let Some(EnteredCall { entry: Entry::Outermost, frees_last_block }) =
        pending::begin(context, thread, stack_pointer, pending)
        && pending.aux != 0
    {
        late_tags::before_free(context, thread, pending.aux);
        emit::tentative_free(context, thread, pending.aux, frees_last_block);
    }
}

#[uprobe]
fn realloc_old0_size1(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, context.arg(0).unwrap_or(0), context.arg(1).unwrap_or(0));
    0
}

#[uprobe]
fn realloc_old1_size2(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, context.arg(1).unwrap_or(0), context.arg(2).unwrap_or(0));
    0
}

#[uprobe]
fn realloc_old0_size3(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    enter(&context, context.arg(0).unwrap_or(0), context.arg(3).unwrap_or(0));
    0
}

#[uprobe]
fn realloc_old0_product12(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let count: u64 = context.arg(1).unwrap_or(0);
    let size: u64 = context.arg(2).unwrap_or(0);
    enter(&context, context.arg(0).unwrap_or(0), arguments::product(count, size));
    0
}

#[uprobe]
fn realloc_any(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let cookie = arguments::cookie(&context);
    enter(&context, arguments::argument(&context, cookie, 2).unwrap_or(0), arguments::size(&context, cookie));
    0
}

#[uprobe]
fn resize_block0_size1_extra2(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let size = context.arg(1).unwrap_or(0);
    let extra = context.arg(2).unwrap_or(0);
    begin(&context, Pending { call: Call::Resize, size, aux: context.arg(0).unwrap_or(0), extra });
    0
}

#[uprobe]
fn resize_any(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let cookie = arguments::cookie(&context);
    let size = arguments::argument(&context, cookie, 0).unwrap_or(0);
    let extra = arguments::argument(&context, cookie, 1).unwrap_or(0);
    let aux = arguments::argument(&context, cookie, 2).unwrap_or(0);
    begin(&context, Pending { call: Call::Resize, size, aux, extra });
    0
}
