//! Counters of the BPF programs.

use std::os::fd::BorrowedFd;

use aya::maps::{MapData, PerCpuArray};
use memtrace_common::wire::{SYSCALL_TRACEPOINTS, counter};
use memtrace_model::{Amount, Bytes, LossReason, Losses};

use super::bpf::Bpf;
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
    /// Hits of probes.
    pub hits: ProbeHits,
}

/// Hits of probes in traced processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeHits {
    /// Hits at entries of allocator functions, and at instructions inside of them.
    pub entries: u64,
    /// Hits at returns of allocator functions.
    pub returns: u64,
    /// Hits of the probes of tags, spans and marks.
    pub others: u64,
}

impl ProbeHits {
    /// Returns the number of all hits.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.entries.saturating_add(self.returns).saturating_add(self.others)
    }

    /// Returns the hits since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(earlier.entries),
            returns: self.returns.saturating_sub(earlier.returns),
            others: self.others.saturating_sub(earlier.others),
        }
    }
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

/// Returns the map of counters; `None` if it cannot be used.
pub(super) fn map(bpf: &Bpf) -> Option<PerCpuArray<&MapData, u64>> {
    bpf.map("COUNTERS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok())
}

/// Reads the counters, summed over all CPUs. Programs may increment counters during the read.
pub(super) fn read(map: &PerCpuArray<&MapData, u64>) -> (Counters, RedundantRuns) {
    let total = |index| total(map, index);
    let mut losses = Losses::default();
    for (index, &reason) in (0u32..).zip(LossReason::ALL) {
        losses.add(reason, total(index));
    }
    let counters = Counters {
        losses,
        filtered: Amount { bytes: Bytes(total(counter::FILTERED_BYTES)), count: total(counter::FILTERED) },
        nested: total(counter::NESTED),
        hits: ProbeHits {
            entries: total(counter::ENTRY_HITS),
            returns: total(counter::RETURN_HITS),
            others: total(counter::OTHER_HITS),
        },
    };
    let all_busy = [counter::ALL_BUSY, counter::ALL_BUSY + 1].map(total);
    (counters, RedundantRuns { stood_in: total(counter::STOOD_IN), all_busy })
}

/// Returns the hits of the probes of tags, spans and marks, summed over all CPUs.
pub(super) fn other_hits(map: &PerCpuArray<&MapData, u64>) -> u64 {
    total(map, counter::OTHER_HITS)
}

/// Returns a counter, summed over all CPUs; 0 if it cannot be read.
pub(super) fn total(map: &PerCpuArray<&MapData, u64>, index: u32) -> u64 {
    map.get(&index, 0).map_or(0, |values| values.iter().sum())
}

/// Returns the number of times that the kernel skipped a program at its probe (`recursion_misses` of `struct
/// bpf_prog_info`).
pub(super) fn missed(program: BorrowedFd<'_>) -> u64 {
    program_info(program).map_or(0, |info| info.recursion_misses)
}
