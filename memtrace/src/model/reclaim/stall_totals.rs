//! Number and total time of stalls.

use std::ops::{AddAssign, SubAssign};

use crate::model::Nanoseconds;

/// How often something waited for memory, and how long. Additive, wrapping as amounts do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallTotals {
    /// How often.
    pub count: u64,
    /// How long, all together.
    pub time: Nanoseconds,
}

impl AddAssign for StallTotals {
    fn add_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_add(other.count);
        self.time.0 = self.time.0.wrapping_add(other.time.0);
    }
}

impl SubAssign for StallTotals {
    fn sub_assign(&mut self, other: Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.time.0 = self.time.0.wrapping_sub(other.time.0);
    }
}
