//! The traced processes: their executables, mappings and allocators.

mod allocator_ids;
mod allocators;
mod cgroup_names;
mod code_generators;
mod coverage;
pub(super) mod generated_code;
mod late_probes;
pub(super) mod lifetimes;
mod owners;
mod poll;
mod tracker;
pub(super) mod traits;
mod verdicts;

pub(super) use coverage::Coverage;
pub(super) use poll::Changes;
pub(super) use tracker::ProcessTracker;
