//! Units: addresses, sizes and times.

mod address;
mod bytes;
mod nanoseconds;
mod tick;

pub use address::{AbsAddr, FileOffset, VirtOffset};
pub use bytes::{Bytes, PAGE};
pub use nanoseconds::Nanoseconds;
pub use tick::Tick;
