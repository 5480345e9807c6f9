//! Counters of the BPF programs.

use std::os::fd::BorrowedFd;

use aya::maps::{MapData, PerCpuArray};
use memtrace_common::wire::{SYSCALL_TRACEPOINTS, counter};
use memtrace_model::{Amount, Bytes, LossReason, Losses};

use super::bpf_syscall::program_info;

/// Counters of the BPF programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lost events, by reason.
    pub losses: Losses,
    /// Allocations that the size filter dropped.
    pub filtered: Amount,
    /// Allocator calls within other allocator calls.
    pub nested: u64,
}

/// Counters of the redundant programs at tracepoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RedundantRuns {
    /// Events that the second or third program handled, because the kernel skipped the first one.
    pub(super) stood_in: u64,
    /// Number of times that all three programs of a tracepoint were in progress on one CPU: at `sys_enter`, and at
    /// `sys_exit`.
    pub(super) all_busy: [u64; SYSCALL_TRACEPOINTS as usize],
}

/// Reads the counters, summed over all CPUs. Programs may increment counters during the read.
pub(super) fn read(map: &PerCpuArray<&MapData, u64>) -> (Counters, RedundantRuns) {
    let total = |index: u32| map.get(&index, 0).map_or(0, |values| values.iter().sum::<u64>());
    let mut losses = Losses::default();
    for (index, &reason) in (0u32..).zip(LossReason::ALL) {
        losses.add(reason, total(index));
    }
    let counters = Counters {
        losses,
        filtered: Amount { bytes: Bytes(total(counter::FILTERED_BYTES)), count: total(counter::FILTERED) },
        nested: total(counter::NESTED),
    };
    let all_busy = [counter::ALL_BUSY, counter::ALL_BUSY + 1].map(total);
    (counters, RedundantRuns { stood_in: total(counter::STOOD_IN), all_busy })
}

/// Returns the number of times that the kernel skipped a program at its probe (`recursion_misses` of `struct
/// bpf_prog_info`).
pub(super) fn missed(program: BorrowedFd<'_>) -> u64 {
    program_info(program).map_or(0, |info| info.recursion_misses)
}
