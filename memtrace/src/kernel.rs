//! The running kernel: programs loaded, probes attached, rings read, records decoded.
//!
//! Only this room names `aya` and the wire format.

mod attach;
mod attach_backend;
mod bpf_features;
mod bpf_syscall;
mod bpf_variant;
mod btf;
mod calibrate;
mod counters;
pub mod decode;
mod detach;
mod error;
mod faults;
pub mod features;
mod file_id;
mod gate;
mod helper_process;
mod load;
mod own_mapping;
mod process_filter;
mod program_time;
mod reclaim;
mod rings;
mod settings;
mod tracepoints;
pub mod unwind_maps;
mod uprobe_multi;

pub use attach::{Probe, Probes, Scope};
pub use calibrate::Dummy;
pub use counters::Counters;
pub use detach::Detaching;
pub use error::KernelError;
pub use gate::Calls;
pub use load::Kernel;
pub use own_mapping::OwnMapping;
pub use process_filter::{Condition, ProcessFilter};
pub use program_time::ProgramTime;
pub use reclaim::ReclaimCounters;
pub use rings::{Drained, RingReader};
pub use settings::Options;

/// The most frames that a stack can have.
pub const MAX_FRAMES: u32 = memtrace_common::wire::MAX_FRAMES as u32;
