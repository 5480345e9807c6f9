//! Selection of the processes to trace and of the probes to place in their allocators.

mod config;
mod coverage_gaps;
mod descendants;
pub(crate) mod filter;
mod go_programs;
mod late;
mod left_out;
pub(crate) mod other_tracers;
mod patched_code;
mod postponed;
mod probes;
pub(crate) mod refused;
mod running;
mod selection;
mod targets;
mod unread_files;

pub(crate) use config::{ProbeSite, Target};
pub(crate) use late::LateProbes;
pub(crate) use left_out::LeftOut;
pub(crate) use patched_code::usable_stub;
pub(crate) use postponed::PostponedProbes;
pub(crate) use probes::AllocatorProbes;
pub(crate) use running::RunningSelection;
pub(crate) use selection::{Selection, running_processes};
pub(crate) use targets::Targets;
pub(crate) use unread_files::count_unread_files;
