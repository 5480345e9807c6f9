//! The return of every function that hands out a block.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::uretprobe;
use aya_ebpf::programs::RetProbeContext;
use memtrace_common::vocabulary::LossReason;

use crate::pending::{self, Call, Pending};
use crate::thread::Thread;
use crate::{emit, loss, maps, own_stack, settings, stack};

#[uretprobe]
fn call_return(context: RetProbeContext) -> u32 {
    own_stack::keep(&context);
    if !maps::gate_open() {
        return 0;
    }
    let thread = Thread::current();
    // SAFETY: at a return probe the context is the user's registers.
    let stack_pointer = unsafe { (*context.regs).rsp };
    if let Some(pending) = pending::finish(&context, thread, stack_pointer) {
        returned(&context, thread, pending);
    }
    0
}

#[inline(always)]
fn returned(context: &RetProbeContext, thread: Thread, pending: Pending) {
    let result: u64 = context.ret();
    let address = match pending.call {
        Call::Alloc => result,
        Call::Realloc => {
            // Of size 0, null means that the old block was freed, as glibc does it (malloc/malloc.c, realloc).
            if result == 0 && pending.size != 0 && pending.aux != 0 {
                emit::restore(context, thread, pending.aux);
            }
            result
        }
        // An int: the upper half of the register means nothing.
        Call::AllocOut if result as u32 != 0 => 0,
        // SAFETY: the helper checks the address.
        Call::AllocOut => match unsafe { bpf_probe_read_user(pending.aux as *const u64) } {
            Ok(address) => address,
            Err(_) => {
                loss::count(context, LossReason::PointerUnreadable, 1);
                0
            }
        },
    };
    if address == 0 {
        return;
    }
    if !settings::wants(pending.size) {
        loss::filtered(pending.size);
        return;
    }
    let ring = emit::ring_for(thread, address);
    // SAFETY: at a return probe the context is the user's registers.
    let registers = unsafe { &*context.regs };
    let stack = stack::take(context, registers, thread, ring);
    emit::alloc(context, ring, thread, address, pending.size, stack);
}
