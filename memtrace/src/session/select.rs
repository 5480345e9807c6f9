//! Selection of the processes to trace and of the probes to place in their allocators.

mod config;
mod coverage_gaps;
pub(super) mod filter;
mod late;
mod probes;
mod running;
mod selection;
mod targets;

pub(crate) use config::{ProbeSite, Target};
pub(super) use late::LateProbes;
pub(super) use probes::AllocatorProbes;
pub(super) use running::RunningSelection;
pub(super) use selection::{Selection, running_processes};
pub(super) use targets::Targets;
