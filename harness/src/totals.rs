//! Totals of allocations and frees, as a victim prints them and as memtrace reports them.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use memtrace_json::Numbers;
use serde::Deserialize;

/// Allocations and frees of a stack, a process or a whole trace. Frees are counted if the allocation of the block was
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Totals {
    pub live_bytes: u64,
    pub live_count: u64,
    /// Bytes that were live when the process ended. Zero in the totals that a victim prints, because it prints them while
    /// it runs.
    #[serde(default)]
    pub exit_bytes: u64,
    #[serde(default)]
    pub exit_count: u64,
    pub alloc_bytes: u64,
    pub alloc_count: u64,
    pub free_bytes: u64,
    pub free_count: u64,
}

impl Totals {
    /// Returns the totals of `count` live blocks with a total size of `bytes`.
    #[must_use]
    pub const fn live(bytes: u64, count: u64) -> Self {
        Self {
            live_bytes: bytes,
            live_count: count,
            exit_bytes: 0,
            exit_count: 0,
            alloc_bytes: bytes,
            alloc_count: count,
            free_bytes: 0,
            free_count: 0,
        }
    }

    /// Returns the totals after the end of the process: the live blocks become blocks held at exit.
    #[must_use]
    pub const fn at_exit(self) -> Self {
        let Self { live_bytes, live_count, exit_bytes, exit_count, .. } = self;
        Self {
            live_bytes: 0,
            live_count: 0,
            exit_bytes: live_bytes + exit_bytes,
            exit_count: live_count + exit_count,
            ..self
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.live_bytes += other.live_bytes;
        self.live_count += other.live_count;
        self.exit_bytes += other.exit_bytes;
        self.exit_count += other.exit_count;
        self.alloc_bytes += other.alloc_bytes;
        self.alloc_count += other.alloc_count;
        self.free_bytes += other.free_bytes;
        self.free_count += other.free_count;
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            live_bytes: self.live_bytes - other.live_bytes,
            live_count: self.live_count - other.live_count,
            exit_bytes: self.exit_bytes - other.exit_bytes,
            exit_count: self.exit_count - other.exit_count,
            alloc_bytes: self.alloc_bytes - other.alloc_bytes,
            alloc_count: self.alloc_count - other.alloc_count,
            free_bytes: self.free_bytes - other.free_bytes,
            free_count: self.free_count - other.free_count,
        }
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(totals: I) -> Self {
        totals.fold(Self::default(), Self::add)
    }
}

/// # Panics
///
/// If live numbers are negative: they are changes.
impl From<Numbers> for Totals {
    fn from(numbers: Numbers) -> Self {
        let live = |number: i64| u64::try_from(number).expect("the report has totals, not changes");
        Self {
            live_bytes: live(numbers.live_bytes),
            live_count: live(numbers.live_count),
            exit_bytes: numbers.exit_bytes,
            exit_count: numbers.exit_count,
            alloc_bytes: numbers.alloc_bytes,
            alloc_count: numbers.alloc_count,
            free_bytes: numbers.free_bytes,
            free_count: numbers.free_count,
        }
    }
}

/// Totals that a victim prints: its activity since its first barrier.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct VictimTotals {
    #[serde(flatten)]
    pub totals: Totals,
    /// Number of frees of blocks that were allocated before the barrier or that the size filter
    /// excludes.
    pub unmatched_frees: u64,
    /// Bytes of allocations that the size filter excludes.
    pub filtered_bytes: u64,
    pub filtered_count: u64,
    /// High-water mark of the live bytes.
    pub peak_bytes: u64,
    pub sites: Vec<SiteTotals>,
}

/// Totals of one call of the allocator in the source of a victim.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SiteTotals {
    /// Name of the calling function.
    pub name: String,
    pub line: u32,
    #[serde(flatten)]
    pub totals: Totals,
}
