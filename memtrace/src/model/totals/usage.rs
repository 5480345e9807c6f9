//! Amounts of memory, and how much of it is live, was allocated and was freed.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::model::StallTotals;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    /// Writes the number with a binary unit and, from KiB on, two digits: `17 B`, `1.50 KiB`, `3.25 GiB`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return out.pad(&format!("{} B", self.0));
        }
        let mut unit = 0;
        let mut scaled = self.0 as f64 / 1024.0;
        while scaled >= 1023.995 && unit + 1 < UNITS.len() {
            scaled /= 1024.0;
            unit += 1;
        }
        out.pad(&format!("{scaled:.2} {}", UNITS[unit]))
    }
}

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

/// How an image came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageEnd {
    /// The process ended; what was live then is reported as live.
    Exit,
    /// The kernel has killed the process for want of memory; what was live then is reported as live.
    OomKill,
    /// The process runs another program; what was live then is gone, and is reported as discarded.
    Exec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_like_a_person_would_write_them() {
        let shown = |bytes: u64| Bytes(bytes).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.00 KiB");
        assert_eq!(shown(1536), "1.50 KiB");
        assert_eq!(shown(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(shown(3 << 30), "3.00 GiB");
        assert_eq!(shown(u64::MAX), "16.00 EiB");
    }
}
