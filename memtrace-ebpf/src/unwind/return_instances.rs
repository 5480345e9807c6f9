//! Return addresses that the kernel has exchanged to see a return.
//!
//! While a call whose return is probed is in progress, a trampoline's address lies where its return address belongs
//! (`prepare_uretprobe`, kernel/events/uprobes.c). The kernel keeps the true ones in a list of the task's, each with the
//! place on the stack that it belongs to.

use crate::kernel::{self, read};
use crate::settings;

/// As long as the list can be (`MAX_URETPROBE_DEPTH`, include/linux/uprobes.h).
pub const MOST: u32 = 64;

/// The true return address at `slot` of the stack, if it was exchanged.
#[inline(always)]
pub fn original(slot: u64) -> Option<u64> {
    match unwind_original_return(slot) {
        0 => None,
        address => Some(address),
    }
}

/// 0 where it was not exchanged. Is verified by itself, as the step is.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_original_return(slot: u64) -> u64 {
    search(slot).unwrap_or(0)
}

#[inline(always)]
fn search(slot: u64) -> Option<u64> {
    if settings::task_utask() == 0 {
        return None;
    }
    let utask = read(kernel::task(), settings::task_utask())?;
    if utask == 0 {
        return None;
    }
    let mut instance = read(utask, settings::utask_instances())?;
    for _ in 0..MOST {
        if instance == 0 {
            return None;
        }
        if read::<u64>(instance, settings::instance_stack())? == slot {
            return read(instance, settings::instance_address());
        }
        instance = read(instance, settings::instance_next())?;
    }
    None
}
