//! The kernel half's own counters.

use std::os::fd::BorrowedFd;

use aya::maps::{MapData, PerCpuArray};
use memtrace_common::wire::{SYSCALL_TRACEPOINTS, counter};

use super::bpf_syscall::program_info;
use crate::model::{Amount, Bytes, LossReason, Losses};

/// What the kernel half counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What it could not tell.
    pub losses: Losses,
    /// Allocations that the size filter kept out.
    pub filtered: Amount,
    /// Allocator calls made inside others.
    pub nested: u64,
}

/// How programs took turns that follow the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// How often one has done what the first was not run for.
    pub(super) stood_in: u64,
    /// How often all that follow the beginning, and all that follow the end, of system calls were in progress at once on one
    /// processor.
    pub(super) all_busy: [u64; SYSCALL_TRACEPOINTS as usize],
}

/// Reads the counters; those of one processor may be a little older than those of another.
pub(super) fn read(map: &PerCpuArray<&MapData, u64>) -> (Counters, Turns) {
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
    (counters, Turns { stood_in: total(counter::STOOD_IN), all_busy })
}

/// How often the kernel did not run a program at its probe (`recursion_misses` of `struct bpf_prog_info`, since 5.12).
pub(super) fn missed(program: BorrowedFd<'_>) -> u64 {
    program_info(program).map_or(0, |info| info.recursion_misses)
}
