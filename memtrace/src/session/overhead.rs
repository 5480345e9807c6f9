//! Estimate of the overhead of tracing, made before a process is traced.

mod estimate;
mod measure;
pub(crate) mod probe_cost;
mod warning;

pub(super) use measure::{Overhead, call_costs};
