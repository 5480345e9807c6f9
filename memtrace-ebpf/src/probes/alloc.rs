//! Functions that hand out a block: malloc, calloc, aligned_alloc, posix_memalign and their like.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::wire::gate;

use crate::pending::{self, Call, Pending};
use crate::thread::Thread;
use crate::{hook, maps, own_stack, rate, registers};

#[inline(always)]
fn enter(context: &ProbeContext, call: Call, size: u64, aux: u64) {
    match maps::gate() {
        gate::OPEN => {
            let stack_pointer = registers::stack_pointer(registers::of(context));
            let _ = pending::begin(context, Thread::current(), stack_pointer, Pending { call, size, aux, extra: 0 });
        }
        gate::COUNTING => rate::count(size),
        _ => {}
    }
}

#[inline(always)]
fn argument(context: &ProbeContext, index: usize) -> u64 {
    context.arg(index).unwrap_or(0)
}

#[uprobe]
fn alloc_size0(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    enter(&context, Call::Alloc, argument(&context, 0), 0);
    0
}

#[uprobe]
fn alloc_size1(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    enter(&context, Call::Alloc, argument(&context, 1), 0);
    0
}

#[uprobe]
fn alloc_product01(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    // Where the product overflows the call fails, and the size is never looked at.
    let size = argument(&context, 0).wrapping_mul(argument(&context, 1));
    enter(&context, Call::Alloc, size, 0);
    0
}

#[uprobe]
fn alloc_product12(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    let size = argument(&context, 1).wrapping_mul(argument(&context, 2));
    enter(&context, Call::Alloc, size, 0);
    0
}

#[uprobe]
fn alloc_out0_size2(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    enter(&context, Call::AllocOut, argument(&context, 2), argument(&context, 0));
    0
}

#[uprobe]
fn alloc_any(context: ProbeContext) -> u32 {
    own_stack::keep(&context);
    let cookie = hook::cookie(&context);
    match hook::argument(&context, cookie, 2) {
        Some(out) => enter(&context, Call::AllocOut, hook::size(&context, cookie), out),
        None => enter(&context, Call::Alloc, hook::size(&context, cookie), 0),
    }
    0
}
