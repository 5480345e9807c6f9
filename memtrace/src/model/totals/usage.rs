//! Amounts of memory, and their totals of live, held at exit, allocated and freed.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::model::{Bytes, StallTotals};

/// Number of blocks and sum of their bytes. Additive; wraps while a difference is temporarily negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// Sum of the requested bytes.
    pub bytes: Bytes,
    /// Number of blocks.
    pub count: u64,
}

impl Amount {
    /// Returns the amount of one block of `bytes`.
    #[must_use]
    pub const fn one(bytes: Bytes) -> Self {
        Self { bytes, count: 1 }
    }

    /// Returns the greater number of bytes, and of blocks.
    #[must_use]
    pub fn greater(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), count: self.count.max(other.count) }
    }

    /// Returns the lesser number of bytes, and of blocks.
    #[must_use]
    pub fn lesser(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), count: self.count.min(other.count) }
    }

    /// Returns the difference of bytes, and of blocks; 0 where `other` is greater.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { bytes: Bytes(self.bytes.0.saturating_sub(other.bytes.0)), count: self.count.saturating_sub(other.count) }
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

/// Totals of a site, a process or a trace: twelve of memory, or two of stalls. Additive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// Allocated and not freed, by processes that run.
    pub live: Amount,
    /// Allocated and not freed when the process ended.
    pub exit: Amount,
    /// Allocated since tracing began.
    pub alloc: Amount,
    /// Freed, among the blocks allocated since tracing began.
    pub free: Amount,
    /// Freed by the allocating thread before its next allocation. They are a part of the freed ones.
    pub temporary: Amount,
    /// Live, on pages that may have been touched within a time; 0 if touches were not measured.
    pub hot: Bytes,
    /// Live, on resident pages that were not touched within that time.
    pub cold: Bytes,
    /// Stalls.
    pub stalls: StallTotals,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.live += other.live;
        self.exit += other.exit;
        self.alloc += other.alloc;
        self.free += other.free;
        self.temporary += other.temporary;
        self.hot.0 = self.hot.0.wrapping_add(other.hot.0);
        self.cold.0 = self.cold.0.wrapping_add(other.cold.0);
        self.stalls += other.stalls;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.live -= other.live;
        self.exit -= other.exit;
        self.alloc -= other.alloc;
        self.free -= other.free;
        self.temporary -= other.temporary;
        self.hot.0 = self.hot.0.wrapping_sub(other.hot.0);
        self.cold.0 = self.cold.0.wrapping_sub(other.cold.0);
        self.stalls -= other.stalls;
    }
}

impl Usage {
    /// Returns the number of events with a stack: allocations, first touches or stalls.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.alloc.count.wrapping_add(self.stalls.count)
    }

    /// Returns true if all totals are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
