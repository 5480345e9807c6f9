//! Units: addresses, sizes and times.

mod address;
mod bytes;
mod tick;

pub use address::{AbsAddr, FileOffset, VirtOffset};
pub use bytes::{Bytes, HUGE_PAGE, PAGE};
pub use tick::Tick;

use std::fmt;

use crate::format;

/// A number of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanoseconds(pub u64);

impl fmt::Display for Nanoseconds {
    /// Writes the time with a unit and, from µs on, two decimals: `17 ns`, `1.50 µs`, `3.25 s`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format::nanoseconds(self.0))
    }
}
