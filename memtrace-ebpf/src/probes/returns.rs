//! The return of every function that hands out a block.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_common::vocabulary::LossReason;

use crate::emit::Block;
use crate::pending::{self, Call, Pending};
use crate::registers::POPPED_BY_RETURN;
use crate::registers::Registers;
use crate::stack::{Caller, Returning};
use crate::thread::Thread;
use crate::{emit, gate, loss, private_stack, registers, settings, stack};

#[uretprobe]
fn call_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let (ip, stack_pointer) = (registers::instruction(registers), registers::stack_pointer(registers));
    enter(&context, registers, Caller { ip, stack_pointer });
    0
}

/// At the return instruction itself, of a function that may also be left by an exception: the kernel exchanges no return
/// address, so that whoever unwinds the stack finds it whole.
#[uprobe]
fn call_return_site(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let stack_pointer = registers::stack_pointer(registers).wrapping_add(POPPED_BY_RETURN);
    enter(&context, registers, Caller { ip: registers::caller(registers), stack_pointer });
    0
}

#[inline(always)]
fn enter(context: &impl EbpfContext, registers: &Registers, caller: Caller) {
    if !gate::is_open_for_current() {
        return;
    }
    let thread = Thread::current();
    if let Some((pending, allocator)) = pending::finish(context, thread, caller.stack_pointer)
        && let Some((address, size)) = handed_out(context, registers, thread, pending)
    {
        let ring = emit::ring_for(thread, address);
        let stack = stack::take(context, &Returning { registers, caller }, thread, ring);
        emit::alloc(context, ring, thread, allocator, Block { address, size, stack });
    }
}

/// The block that the call has handed out, and its size, if there is one that is wanted.
#[inline(always)]
fn handed_out(
    context: &impl EbpfContext,
    registers: &Registers,
    thread: Thread,
    pending: Pending,
) -> Option<(u64, u64)> {
    let result = registers::result(registers);
    let mut size = pending.size;
    let address = match pending.call {
        Call::Alloc => result,
        Call::Free => 0,
        Call::Realloc => {
            // Of size 0, null means that the old block was freed, as glibc does it (malloc/malloc.c, realloc).
            if result == 0 && pending.size != 0 && pending.aux != 0 {
                emit::restore(context, thread, pending.aux);
            }
            result
        }
        // It stays as it was where it could not have the size.
        Call::Resize if result < pending.size => {
            if pending.aux != 0 {
                emit::restore(context, thread, pending.aux);
            }
            0
        }
        Call::Resize => {
            size = pending.size.saturating_add(pending.extra).min(result);
            pending.aux
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
        return None;
    }
    if !settings::wants(size) {
        loss::filtered(size);
        return None;
    }
    Some((address, size))
}
