//! Amounts of memory, and how much of it is live, was allocated and was freed.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::model::{Bytes, StallTotals};

/// So many blocks, of so many bytes together. Additive, wrapping where a difference goes below zero for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// The bytes of all blocks together, as requested.
    pub bytes: Bytes,
    /// The number of blocks.
    pub count: u64,
}

impl Amount {
    /// One block of `bytes`.
    #[must_use]
    pub const fn one(bytes: Bytes) -> Self {
        Self { bytes, count: 1 }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_add(other.bytes.0);
        self.count = self.count.wrapping_add(other.count);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        self.bytes.0 = self.bytes.0.wrapping_sub(other.bytes.0);
        self.count = self.count.wrapping_sub(other.count);
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

/// The numbers of a site, a process or a whole trace: six of memory, or two of waiting for it. Additive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Allocated and not yet freed.
    pub live: Amount,
    /// Allocated since tracing began.
    pub alloc: Amount,
    /// Freed, of what was allocated since tracing began.
    pub free: Amount,
    /// Waits for memory.
    pub stalls: StallTotals,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.live += other.live;
        self.alloc += other.alloc;
        self.free += other.free;
        self.stalls += other.stalls;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.live -= other.live;
        self.alloc -= other.alloc;
        self.free -= other.free;
        self.stalls -= other.stalls;
    }
}

impl Usage {
    /// How many events were booked that have a stack: allocations, first touches or waits.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.alloc.count.wrapping_add(self.stalls.count)
    }

    /// Whether all numbers are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
