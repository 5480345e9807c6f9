//! BPF programs in the running kernel: loading, attaching, rings and maps.
//!
//! This is the only module that uses `aya` and the wire format.

mod activity;
mod attach;
mod attach_backend;
mod attach_point;
mod bpf;
mod bpf_features;
mod bpf_syscall;
mod btf;
mod calibrate;
mod counters;
pub mod decode;
mod demotions;
mod detach;
mod error;
mod faults;
pub mod features;
mod file_id;
mod gate;
mod helper_process;
mod load;
mod map_sizes;
mod mark_entries;
mod process_filter;
mod program_time;
mod reclaim;
mod removed_cgroups;
mod rings;
mod settings;
pub mod stack_copies;
mod tags;
mod thread_usage;
mod tracepoints;
pub mod unwind_maps;
mod uprobe_multi;
mod wire_type;

pub use activity::{ActivityReader, StepSite, ThreadActivity};
pub use attach::{LoadedWordSite, Probe, Probes, ResultProbes, TagSite};
pub use attach_point::Scope;
pub use calibrate::CalibrationFunction;
pub use counters::Counters;
pub use detach::Detach;
pub use error::KernelError;
pub use gate::CallRate;
pub use load::Kernel;
pub use map_sizes::{MapSizes, MapUses};
pub use mark_entries::{MarkEntry, MarkEntryReader};
pub use memtrace_common::vocabulary::ResultCookie;
pub use process_filter::{Condition, ProcessFilter, ThreadFilter};
pub use program_time::ProgramTime;
pub use reclaim::ReclaimCounters;
pub use removed_cgroups::{RemovedCgroup, RemovedCgroupReader};
pub use rings::{Drained, RingReader};
pub use settings::{ActivityOptions, Options};
pub use thread_usage::{ProcessStart, RunningThread, ThreadTurnover, ThreadUsageReader};
