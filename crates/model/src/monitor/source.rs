//! Origin of the counters of the heap.

use super::counter::UsageCounter;

/// Origin of the heap counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterSource {
    /// No counters: memtrace knows no allocator of the process, or cannot trace it.
    #[default]
    None,
    /// BPF programs at the functions of the allocator.
    Bpf,
    /// The counters that jemalloc keeps for each thread. It does not count blocks.
    Jemalloc,
}

impl CounterSource {
    /// All origins.
    pub const ALL: [Self; 3] = [Self::None, Self::Bpf, Self::Jemalloc];

    /// Name in the output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bpf => "bpf",
            Self::Jemalloc => "jemalloc",
        }
    }

    /// Returns true if the values of a counter are known with this source.
    #[must_use]
    pub const fn counts(self, counter: UsageCounter) -> bool {
        match self {
            Self::None => !counter.is_of_heap(),
            Self::Bpf => true,
            Self::Jemalloc => !counter.counts_blocks(),
        }
    }
}

/// Origin of the heap counters of a process, and their age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// The origin.
    pub source: CounterSource,
    /// The counters could not be read in time. The last values are repeated.
    pub is_stale: bool,
}
