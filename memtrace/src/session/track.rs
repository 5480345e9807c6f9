//! The traced processes: their executables, mappings and allocators.

mod allocator_ids;
mod allocators;
mod late_probes;
mod poll;
mod tracker;

pub(super) use poll::Changes;
pub(super) use tracker::ProcessTracker;
