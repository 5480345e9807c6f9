//! The traced processes: their executables, mappings and allocators.

mod allocator_ids;
mod allocators;
mod cgroup_names;
mod code_generators;
mod coverage;
pub(crate) mod generated_code;
mod late_probes;
pub(crate) mod lifetimes;
mod own_profiles;
mod owners;
mod poll;
mod tracker;
pub(crate) mod traits;
mod verdicts;

pub(crate) use coverage::Coverage;
pub(crate) use poll::Changes;
pub(crate) use tracker::ProcessTracker;
