//! What user space fixed before loading. The verifier sees constants here and drops what they rule out.

use core::ptr::read_volatile;

use memtrace_common::wire::{MAX_FRAMES, Settings};

/// Overwritten by the loader.
#[unsafe(no_mangle)]
static SETTINGS: Settings = Settings {
    start_ns: 0,
    min_size: 0,
    max_size: u64::MAX,
    rings: 1,
    max_depth: MAX_FRAMES as u32,
    wake_mark: u64::MAX,
    task_signal: 0,
    signal_live: 0,
    task_utask: 0,
    utask_instances: 0,
    instance_stack: 0,
    instance_address: 0,
    instance_next: 0,
    reserved: 0,
};

macro_rules! read {
    // SAFETY: a read of an initialised static. Volatile, lest the compiler take the default for the value.
    ($field:ident) => {
        unsafe { read_volatile(&raw const SETTINGS.$field) }
    };
}

#[inline(always)]
pub fn start_ns() -> u64 {
    read!(start_ns)
}

/// Whether an allocation of `size` bytes is wanted.
#[inline(always)]
pub fn wants(size: u64) -> bool {
    size >= read!(min_size) && size <= read!(max_size)
}

#[inline(always)]
pub fn rings() -> u32 {
    read!(rings)
}

#[inline(always)]
pub fn max_depth() -> u32 {
    read!(max_depth)
}

#[inline(always)]
pub fn wake_mark() -> u64 {
    read!(wake_mark)
}

/// False, which the compiler does not know.
#[inline(always)]
pub fn never() -> bool {
    read!(reserved) != 0
}

#[inline(always)]
pub fn task_signal() -> usize {
    read!(task_signal) as usize
}

#[inline(always)]
pub fn signal_live() -> usize {
    read!(signal_live) as usize
}

#[inline(always)]
pub fn task_utask() -> u32 {
    read!(task_utask)
}

#[inline(always)]
pub fn utask_instances() -> u32 {
    read!(utask_instances)
}

#[inline(always)]
pub fn instance_stack() -> u32 {
    read!(instance_stack)
}

#[inline(always)]
pub fn instance_address() -> u32 {
    read!(instance_address)
}

#[inline(always)]
pub fn instance_next() -> u32 {
    read!(instance_next)
}
