//! Return addresses that the kernel has replaced for uretprobes.
//!
//! While a call with a uretprobe is in progress, the return address on the stack is the address of a trampoline
//! (`prepare_uretprobe`, kernel/events/uprobes.c). The kernel keeps the original return addresses in a list of the
//! task, each with its address on the stack.

use crate::kernel::{self, read};
use crate::limits::MAX_URETPROBE_DEPTH;
use crate::settings::field;

/// Returns the original return address at the address `slot` of the stack, or `None` if it was not replaced.
#[inline(always)]
pub fn original(slot: u64) -> Option<u64> {
    match unwind_original_return(slot) {
        0 => None,
        address => Some(address),
    }
}

/// Does the work of [`original`]; returns 0 if the return address was not replaced. The function is global, like
/// [`super::unwind_step`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_original_return(slot: u64) -> u64 {
    search(slot).unwrap_or(0)
}

#[inline(always)]
fn search(slot: u64) -> Option<u64> {
    if field!(return_instances.known) == 0 {
        return None;
    }
    let utask = read(kernel::current_task(), field!(return_instances.task_utask))?;
    if utask == 0 {
        return None;
    }
    let mut instance = read(utask, field!(return_instances.utask_return_instances))?;
    for _ in 0..MAX_URETPROBE_DEPTH {
        if instance == 0 {
            return None;
        }
        if read::<u64>(instance, field!(return_instances.instance_stack))? == slot {
            return read(instance, field!(return_instances.instance_orig_ret_vaddr));
        }
        instance = read(instance, field!(return_instances.instance_next))?;
    }
    None
}
