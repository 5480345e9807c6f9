//! The nouns: what crosses from one stage to the next. No I/O, no clock, no thread.
//!
//! Three types are the joints between the stages, and each can be written by hand in a test: [`Event`] (decoded, owned),
//! [`Snapshot`] (raw addresses; merges and subtracts) and [`Profile`] (names resolved; what every writer reads).

mod address;
mod belonging;
mod event;
mod event_class;
mod explanation;
mod group;
mod group_by;
mod id;
mod losses;
mod mapping;
mod mapping_kind;
mod metric;
mod oom;
mod order;
mod partition;
mod pressure;
mod process_event;
mod profile;
mod reclaim;
mod replaced;
mod residency;
mod rusage;
mod snapshot;
mod stack;
mod stacks;
mod stall;
mod time;
mod tree;
mod usage;
mod variance;

pub use address::{AbsAddr, FileOffset, VirtOffset};
pub use belonging::{Cgroup, Container, User};
pub use event::{Event, EventKind, OutOfMemory, Touch};
pub use event_class::EventClass;
pub use explanation::{
    CgroupLimit, CgroupMemory, Explanation, FileMemory, HeapMemory, HeapSource, HeapStats, MemorySizes, NamedMemory,
    StatusCounters, ThreadStacks,
};
pub use group::{CgroupId, GroupMemory, GroupProfile, StallKey};
pub use group_by::GroupBy;
pub use id::{ImageId, Pid, StackId, Tid};
pub use losses::{LossReason, Losses};
pub use mapping::{BuildId, ImageStart, Mapping, Object, ProcessImage};
pub use mapping_kind::{MappingKind, MappingTraits};
pub use metric::{Measure, Metric};
pub use oom::OomKill;
pub use order::{Order, Orders};
pub use partition::{AllocatorId, Partition, PartitionBy};
pub use pressure::{Pressure, Stalled};
pub use process_event::{ProcessEvent, ProcessEventKind};
pub use profile::{
    Cost, Frame, FrameId, Location, Name, ObjectName, ProcessProfile, Profile, ProgramCost, StackProfile, StackQuality,
    Unnamed,
};
pub use reclaim::{Assessment, KernelThread, MachineReclaim, PerSecond, PressureTime, ReclaimActivity, VmCounters};
pub use replaced::{Replaced, Version};
pub use residency::{PAGE, Residency, ResidentKind, ResidentRange, Touched};
pub use rusage::{ImageRusage, PageFaults, Rusage};
pub use snapshot::{ImageUsage, Snapshot, Snapshots, StackKey, StackUsage};
pub use stack::{Stack, StackEnd};
pub use stacks::Stacks;
pub use stall::{Latencies, Nanoseconds, ReclaimKind, Stall, StallStats, StallTotals};
pub use time::Tick;
pub use tree::{Merged, Node, Tree};
pub use usage::{Amount, Bytes, ImageEnd, Usage};
pub use variance::Variance;

/// The table of hooked functions, shared with the kernel half.
pub use memtrace_common::vocabulary::{FUNCTIONS, Function, Naming, Shape};

/// The limits of what the two halves agreed on.
pub use memtrace_common::wire::{DEFAULT_FRAMES, MAX_FRAMES, MAX_RINGS};
