//! A victim's own books, as it prints them.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::Deserialize;

/// The six numbers of a site, a process or a whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Numbers {
    /// Bytes allocated and not freed.
    pub live_bytes: u64,
    /// Blocks allocated and not freed.
    pub live_count: u64,
    /// Bytes allocated.
    pub alloc_bytes: u64,
    /// Blocks allocated.
    pub alloc_count: u64,
    /// Bytes freed, of those allocated.
    pub free_bytes: u64,
    /// Blocks freed, of those allocated.
    pub free_count: u64,
}

impl Numbers {
    /// The six numbers of `count` blocks of `bytes` together that are all live.
    #[must_use]
    pub const fn live(bytes: u64, count: u64) -> Self {
        Self {
            live_bytes: bytes,
            live_count: count,
            alloc_bytes: bytes,
            alloc_count: count,
            free_bytes: 0,
            free_count: 0,
        }
    }
}

impl AddAssign for Numbers {
    fn add_assign(&mut self, other: Self) {
        self.live_bytes += other.live_bytes;
        self.live_count += other.live_count;
        self.alloc_bytes += other.alloc_bytes;
        self.alloc_count += other.alloc_count;
        self.free_bytes += other.free_bytes;
        self.free_count += other.free_count;
    }
}

impl Add for Numbers {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Numbers {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            live_bytes: self.live_bytes - other.live_bytes,
            live_count: self.live_count - other.live_count,
            alloc_bytes: self.alloc_bytes - other.alloc_bytes,
            alloc_count: self.alloc_count - other.alloc_count,
            free_bytes: self.free_bytes - other.free_bytes,
            free_count: self.free_count - other.free_count,
        }
    }
}

impl Sum for Numbers {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::default(), Self::add)
    }
}

/// What a victim says it has done since the first barrier.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Books {
    /// The six numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Frees of blocks that were allocated before the barrier, or that the size limits kept out.
    pub unmatched_frees: u64,
    /// Bytes of allocations outside the size limits.
    pub filtered_bytes: u64,
    /// Allocations outside the size limits.
    pub filtered_count: u64,
    /// The highest that the live bytes ever were.
    pub peak_bytes: u64,
    /// The victim's named places.
    pub sites: Vec<Site>,
}

/// A named place in a victim's source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Site {
    /// The function.
    pub name: String,
    /// The line of the call to the allocator.
    pub line: u32,
    /// The six numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
}
