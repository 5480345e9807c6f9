//! The traced processes: what they run, which files they map, and which allocators these contain.

mod allocator_ids;
mod allocators;
mod late_probes;
mod poll;
mod tracker;

pub(super) use poll::Changes;
pub(super) use tracker::ProcessTracker;
