//! Result sites and size sites: instructions inside of an allocating function. At a result site, a register has the
//! block. At a size site, a register has the requested size.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::vocabulary::ResultCookie;
use memtrace_common::wire::gate as values;

use crate::origin::{Caller, Inside};
use crate::pending::{self, Call, Pending};
use crate::registers::{self, POPPED_BY_RETURN};
use crate::thread::Thread;
use crate::{arguments, blocks, call_rate, gate, loss, private_stack};

/// An instruction with the block in a register, or null if the allocation failed.
#[uprobe]
fn alloc_result(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let cookie = ResultCookie(arguments::cookie(&context).0);
    let stack_pointer = registers::stack_pointer(registers);
    let block = registers::by_number(registers, stack_pointer, cookie.block());
    let size = cookie.size().map(|number| registers::by_number(registers, stack_pointer, number));
    let thread = Thread::current();
    match gate::of(thread) {
        values::CALL_RATE => {
            if let Some(size) = size
                && block != 0
            {
                call_rate::count(size);
            }
            return 0;
        }
        values::OPEN => loss::entry_hit(),
        _ => return 0,
    }
    let entry = stack_pointer.wrapping_add(cookie.lowered());
    if block == 0 {
        // A size site may have begun this call. If the function tries again, the result site of the new attempt
        // provides the size.
        pending::fail(thread, entry);
    } else if let Some(returned) = pending::result(&context, thread, entry, cookie, size) {
        let caller = Caller { ip: 0, stack_pointer: entry.wrapping_add(POPPED_BY_RETURN) };
        blocks::record(&context, thread, returned, block, &Inside { registers, caller, cookie });
    }
    0
}

/// An instruction with the requested size in a register. It is probed if no register has the size at the result site.
#[uprobe]
fn alloc_size_site(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let cookie = ResultCookie(arguments::cookie(&context).0);
    let stack_pointer = registers::stack_pointer(registers);
    let size = registers::by_number(registers, stack_pointer, cookie.size().unwrap_or(0));
    let thread = Thread::current();
    match gate::of(thread) {
        values::OPEN => {
            loss::entry_hit();
            let entry = stack_pointer.wrapping_add(cookie.lowered());
            let pending = Pending { call: Call::Alloc, size, aux: 0, extra: 0 };
            let _ = pending::begin(&context, thread, entry, pending);
        }
        values::CALL_RATE => call_rate::count(size),
        _ => {}
    }
    0
}
