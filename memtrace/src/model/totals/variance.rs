//! How uncertain estimates are.

use std::ops::{AddAssign, SubAssign};

/// The variances of numbers of pages that are estimated, in pages by pages; zero where pages were counted. Those of things
/// that were chosen independently of each other add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variance {
    /// Of the live pages.
    pub live: u64,
    /// Of the pages that were touched, as often as they were.
    pub alloc: u64,
}

impl Variance {
    /// Of numbers that are so many times as large.
    #[must_use]
    pub const fn scaled(self, squares: u64) -> Self {
        Self { live: self.live.saturating_mul(squares), alloc: self.alloc.saturating_mul(squares) }
    }
}

impl AddAssign for Variance {
    fn add_assign(&mut self, other: Self) {
        self.live = self.live.wrapping_add(other.live);
        self.alloc = self.alloc.wrapping_add(other.alloc);
    }
}

impl SubAssign for Variance {
    fn sub_assign(&mut self, other: Self) {
        self.live = self.live.wrapping_sub(other.live);
        self.alloc = self.alloc.wrapping_sub(other.alloc);
    }
}
