//! Counters of losses, of filtered allocations, of nested calls and of probe hits.

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

/// Adds `count` to the losses for this reason. Logs the first loss on each CPU.
#[inline(always)]
pub fn count(context: &impl EbpfContext, reason: LossReason, count: u64) {
    if add(reason as u32, count) == 0 {
        warn!(context, "first loss on this processor: {}", reason.name());
    }
}

/// Counts a loss without a log message, for callers without the context of the program.
#[inline(always)]
pub fn count_without_log(reason: LossReason) {
    add(reason as u32, 1);
}

/// Counts an allocation of `size` bytes that a filter by size or thread excludes.
#[inline(always)]
pub fn filtered(size: u64) {
    add(counter::FILTERED, 1);
    add(counter::FILTERED_BYTES, size);
}

/// Counts an allocator call inside another one.
#[inline(always)]
pub fn nested() {
    add(counter::NESTED, 1);
}

/// Counts a hit of a probe at the entry of an allocator function, or inside of it, in a traced process.
#[inline(always)]
pub fn entry_hit() {
    add(counter::ENTRY_HITS, 1);
}

/// Counts a hit of a probe at the return of an allocator function, in a traced process.
#[inline(always)]
pub fn return_hit() {
    add(counter::RETURN_HITS, 1);
}

/// Counts a hit of a probe of tags, spans or marks, in a traced process.
#[inline(always)]
pub fn other_hit() {
    add(counter::OTHER_HITS, 1);
}

/// Counts an event that a redundant program has handled because the kernel did not run the first one.
#[inline(always)]
pub fn stood_in() {
    add(counter::STOOD_IN, 1);
}

/// Counts that all programs of a system call tracepoint are in progress on this CPU at once.
#[inline(always)]
pub fn all_busy(tracepoint: u32) {
    add(counter::ALL_BUSY + tracepoint, 1);
}

/// Adds to a counter, and returns its previous value. A program that preempts this one may return the same value.
#[inline(always)]
fn add(index: u32, count: u64) -> u64 {
    match COUNTERS.get_ptr_mut(index) {
        Some(word) => {
            // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
            let before = unsafe { read_volatile(word) };
            // SAFETY: as above.
            unsafe { atomic::add(word, count) };
            before
        }
        None => u64::MAX,
    }
}
