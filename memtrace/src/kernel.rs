//! The running kernel: programs loaded, probes attached, rings read, records decoded.
//!
//! Only this room names `aya` and the wire format.

mod attach;
mod btf;
mod counters;
pub mod decode;
mod detach;
mod error;
mod faults;
pub mod features;
mod load;
mod meter;
mod multi;
mod naming;
mod object;
mod process_filter;
mod reclaim;
mod rings;
mod settings;
mod tracepoints;
mod trap;
pub mod unwind;
mod way;

pub use attach::{Probe, Probes, Scope};
pub use counters::Counters;
pub use detach::Detaching;
pub use error::KernelError;
pub use load::{Calls, Kernel};
pub use meter::ProgramTime;
pub use process_filter::{Condition, ProcessFilter};
pub use reclaim::ReclaimCounters;
pub use rings::{Drained, RingReader};
pub use settings::Options;
pub use trap::Dummy;

/// The most frames that a stack can have.
pub const MAX_FRAMES: u32 = memtrace_common::wire::MAX_FRAMES as u32;
/// The most rings.
pub const MAX_RINGS: u32 = memtrace_common::wire::MAX_RINGS;
