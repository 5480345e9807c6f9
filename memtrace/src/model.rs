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
mod id;
mod kernel_counts;
mod losses;
mod mapping;
mod mapping_kind;
mod metric;
mod notice;
mod oom;
mod order;
mod part;
mod pressure;
mod profile;
mod reclaim;
mod replaced;
mod resident;
mod root;
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
    CgroupLimit, CgroupMemory, Counted, Explanation, FileMemory, HeapBooks, HeapMemory, Held, NamedMemory,
    ThreadStacks, Told,
};
pub use group::{CgroupId, GroupMemory, GroupProfile, StallKey};
pub use id::{ImageId, Pid, StackId, Tid};
pub use kernel_counts::{ImageCounts, KernelCounts, PageFaults};
pub use losses::{LossReason, Losses};
pub use mapping::{Beginning, BuildId, Image, Mapping, Object};
pub use mapping_kind::{MappingKind, MappingTraits};
pub use metric::{Measure, Metric};
pub use notice::{Notice, NoticeKind};
pub use oom::OomKill;
pub use order::{Order, Orders};
pub use part::{AllocatorId, Part, Parts};
pub use pressure::{Pressure, Stalled};
pub use profile::{
    Cost, Frame, FrameId, Location, Name, ObjectName, ProcessProfile, Profile, ProgramCost, StackProfile, StackQuality,
    Unnamed,
};
pub use reclaim::{Effort, KernelThread, MachineReclaim, PressureTime, Reading, Seconds, VmCounters};
pub use replaced::{Replaced, Version};
pub use resident::{PAGE, Residence, ResidentKind, ResidentRange, Touched};
pub use root::Root;
pub use snapshot::{ImageUsage, Snapshot, Snapshots, StackKey, StackUsage};
pub use stack::{Stack, StackEnd};
pub use stacks::Stacks;
pub use stall::{Latencies, Nanoseconds, Stall, StallBook, Stalls, Work};
pub use time::Tick;
pub use tree::{Merged, Node, Tree};
pub use usage::{Amount, Bytes, Ending, Usage};
pub use variance::Variance;

/// The table of hooked functions, shared with the kernel half.
pub use memtrace_common::vocabulary::{FUNCTIONS, Function, Naming, Shape};

/// The limits of what the two halves agreed on.
pub use memtrace_common::wire::{DEFAULT_FRAMES, MAX_FRAMES, MAX_RINGS};
