//! The kernel half's own counters.

use std::os::fd::BorrowedFd;

use aya::maps::{MapData, PerCpuArray};
use memtrace_common::wire::counter;

use super::multi::program_info;
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

/// Reads the counters, and how often a program stood in for another; those of one processor may be a little older than
/// those of another.
pub(super) fn read(map: &PerCpuArray<&MapData, u64>) -> (Counters, u64) {
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
    (counters, total(counter::STOOD_IN))
}

/// How often the kernel did not run a program at its probe (`recursion_misses` of `struct bpf_prog_info`, since 5.12).
pub(super) fn missed(program: BorrowedFd<'_>) -> u64 {
    program_info(program).map_or(0, |info| info.recursion_misses)
}
