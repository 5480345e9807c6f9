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
    /// The counters that jemalloc keeps for each thread. They have bytes, but no numbers of blocks.
    Jemalloc,
}

impl CounterSource {
    /// All origins.
    pub const ALL: [Self; 3] = [Self::None, Self::Bpf, Self::Jemalloc];

    /// Returns the name in the output.
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

/// Origin of the heap counters of a process. The counters may be out of date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Origin of the counters.
    pub source: CounterSource,
    /// True if the counters could not be read in time. The values of the last reading are used again.
    pub is_stale: bool,
}
