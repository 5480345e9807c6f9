//! Which processes are traced, what they have mapped, which allocators they carry, and how a command is started.
//!
//! This room alone knows `/proc`, ELF and instructions. [`inspect`] looks at a process, [`read_image`] at its mappings through
//! [`Objects`], which keeps every file open that a symbol may come from; [`survey`] finds the allocators in them, and
//! [`Launch`] starts a command that waits until it is traced.

mod allocators;
mod belonging;
mod cgroup;
mod elf;
mod error;
mod kernel_counts;
mod launch;
mod maps;
mod memory;
mod objects;
mod own_mapping;
mod pidfd;
mod process;
mod processor_time;
mod resident;
mod runtime;
#[cfg(test)]
mod scratch;
mod select;
mod site;
mod users;
mod vmstat;

pub use allocators::{
    Allocator, FoundFunction, Hooks, Kind, Kinds, LookedAt, NamedAllocator, SkipReason, Skipped, Survey, Verdict,
    Wanted, survey,
};
pub use belonging::{Belonging, Belongings, thread_names};
pub use elf::ElfError;
pub use error::TargetError;
pub use kernel_counts::kernel_counts;
pub use launch::{Candidates, Child, Identity, Launch, candidates, libraries};
pub use maps::{object_at, program_of, read_image, vdso};
pub use memory::{
    GroupReading, MemoryGroups, Sizes as MemorySizes, cgroup_memory, counted, explain, machine_pressure, rollup,
};
pub use objects::Objects;
pub use own_mapping::OwnMapping;
pub use process::{Process, inspect};
pub use processor_time::processor_time;
pub use resident::resident;
pub use runtime::{is_go, is_stripped};
pub use select::{all_processes, cgroup_id, is_in_cgroup, traits, user_id};
pub use site::{Cost as ProbeCost, Reason as SiteReason, Site};
pub use vmstat::vm_counters;
