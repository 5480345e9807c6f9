//! Counters of allocation calls by size. Before recording starts, user space estimates the overhead from these counters.

use aya_ebpf::btf_maps::PerCpuArray;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{SIZE_CLASSES, size_class};

use crate::atomic;

#[btf_map]
static CALLS: PerCpuArray<u64, { SIZE_CLASSES as usize }> = PerCpuArray::new();

/// Counts a call for `size` bytes.
#[inline(always)]
pub fn count(size: u64) {
    if let Some(calls) = CALLS.get_ptr_mut(size_class(size)) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(calls, 1) };
    }
}
