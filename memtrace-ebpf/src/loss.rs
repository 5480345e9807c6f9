//! Counters of what could not be told, and of what was kept out on purpose.

use core::ptr::read_volatile;

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use aya_log_ebpf::warn;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::counter;

use crate::atomic;

#[btf_map]
static COUNTERS: PerCpuArray<u64, { counter::COUNT as usize }> = PerCpuArray::new();

/// Counts `count` losses. The first on each processor is also logged.
#[inline(always)]
pub fn count(context: &impl EbpfContext, reason: LossReason, count: u64) {
    if add(reason as u32, count) == 0 {
        warn!(context, "first loss on this processor: {}", reason.name());
    }
}

/// Counts an allocation that the size filter keeps out.
#[inline(always)]
pub fn filtered(size: u64) {
    add(counter::FILTERED, 1);
    add(counter::FILTERED_BYTES, size);
}

/// Counts an allocator call made inside another one.
#[inline(always)]
pub fn nested() {
    add(counter::NESTED, 1);
}

/// Counts that a second program has done what the first was not run for.
#[inline(always)]
pub fn stood_in() {
    add(counter::STOOD_IN, 1);
}

/// Counts that all programs at a tracepoint of system calls are in progress on this processor.
#[inline(always)]
pub fn all_busy(tracepoint: u32) {
    add(counter::ALL_BUSY + tracepoint, 1);
}

/// Counts, and returns what was counted before; a program that runs in between may be told the same.
#[inline(always)]
fn add(index: u32, count: u64) -> u64 {
    match COUNTERS.get_ptr_mut(index) {
        Some(word) => {
            // SAFETY: the pointer is a map value's, 8 bytes and aligned.
            let before = unsafe { read_volatile(word) };
            // SAFETY: as above.
            unsafe { atomic::add(word, count) };
            before
        }
        None => u64::MAX,
    }
}
