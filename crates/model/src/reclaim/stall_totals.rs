//! Number and total time of stalls.

use std::ops::{AddAssign, SubAssign};

use crate::Nanoseconds;

/// Number and total time of stalls. Negative differences are stored as wrapped numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallTotals {
    /// Number of stalls.
    pub count: u64,
    /// Total time of the stalls.
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
