//! Units: addresses, file offsets, ticks.

mod address;
mod tick;

pub use address::{AbsAddr, FileOffset, VirtOffset};
pub use tick::Tick;
