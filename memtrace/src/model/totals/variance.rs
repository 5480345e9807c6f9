//! Variances of estimates.

use std::ops::{AddAssign, SubAssign};

/// Variances of estimated numbers of pages, in pages squared; zero if pages are counted. Variances of independently
/// sampled pages are additive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variance {
    /// Variance of the live pages.
    pub live: u64,
    /// Variance of the touched pages, which count once per touch.
    pub alloc: u64,
}

impl Variance {
    /// Returns the variance of numbers that are larger by the root of `squares`.
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
