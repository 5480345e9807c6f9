//! Returns of hooked functions.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::ActivityStep;

use crate::origin::{Caller, Returning};
use crate::pending::{self, Call, ReturnedCall};
use crate::registers::{POPPED_BY_RETURN, Registers};
use crate::settings;
use crate::thread::Thread;
use crate::{blocks, demotion, emit, gate, loss, private_stack, registers};

#[uretprobe]
fn call_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let (ip, stack_pointer) = (registers::instruction(registers), registers::stack_pointer(registers));
    finish(&context, registers, Caller { ip, stack_pointer });
    0
}

/// Return instruction of a function that an exception may leave. A uprobe replaces no return address, so the
/// exception's unwinder finds an intact stack.
#[uprobe]
fn call_return_site(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    let stack_pointer = registers::stack_pointer(registers).wrapping_add(POPPED_BY_RETURN);
    finish(&context, registers, Caller { ip: registers::caller(registers), stack_pointer });
    0
}

#[inline(always)]
fn finish(context: &impl EbpfContext, registers: &Registers, caller: Caller) {
    let thread = Thread::current();
    let recorded = gate::recorded(thread);
    if !recorded.frees() {
        return;
    }
    loss::return_hit();
    let Some(mut returned) = pending::finish(context, thread, caller.stack_pointer) else { return };
    if settings::min_call() != u64::MAX {
        activity_end_call(returned.pending.size);
    }
    if let Some((address, size)) = returned_block(context, registers, thread, &mut returned)
        && recorded.allocations()
    {
        blocks::send(context, thread, &returned, (address, size), &Returning { registers, caller });
    }
}

/// Ends the timing of an allocator call, and records the call as activity if it took at least `min_call`. The function
/// is global, because the programs at returns have little stack left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn activity_end_call(size: u64) -> u64 {
    let thread = Thread::current();
    if let Some((call, duration)) = crate::activity::end_call(thread)
        && duration >= settings::min_call()
    {
        let (site, cpu_before) = (call.function as u32, call.cpu);
        let step =
            emit::Step { site, value: size, duration, cpu_before, ..emit::Step::new(ActivityStep::AllocatorCall) };
        emit::activity(thread, step);
    }
    0
}

/// Returns the address and size of the block that the call has returned, unless there is none or a filter excludes
/// it.
#[inline(always)]
fn returned_block(
    context: &impl EbpfContext,
    registers: &Registers,
    thread: Thread,
    returned: &mut ReturnedCall,
) -> Option<(u64, u64)> {
    let pending = returned.pending;
    let result = registers::result(registers);
    let mut size = pending.size;
    let address = match pending.call {
        Call::Alloc if returned.has_recorded(result) => 0,
        Call::Alloc => result,
        Call::Free | Call::RepeatFrees => 0,
        Call::Realloc => {
            // A null result with size 0 means that the old block was freed, as in glibc (malloc/malloc.c, realloc).
            if result == 0 && pending.size != 0 && pending.aux != 0 {
                emit::undo_free(context, thread, pending.aux);
            } else if result == 0 {
                returned.forget_block(pending.aux);
            }
            result
        }
        // The block has not been resized, or the record of the resized block would be dropped. In the second case, no patch
        // reports this call, so the block stays in the sample with its earlier size.
        Call::Resize if result < pending.size || demotion::drops_all(thread.pid) => {
            if pending.aux != 0 {
                emit::undo_free(context, thread, pending.aux);
            }
            0
        }
        Call::Resize => {
            size = pending.size.saturating_add(pending.extra).min(result);
            pending.aux
        }
        // The result is an int: the upper half of the register is undefined.
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
    blocks::recorded_size(context, returned, address, size).map(|size| (address, size))
}
