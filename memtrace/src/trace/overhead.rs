//! Overhead of tracing: an estimate before a running process is traced, and its measurement during the trace.

mod estimate;
mod guard;
mod load;
mod measure;
mod meter;
mod warning;

pub(super) use load::CallCosts;
pub(super) use measure::{Overhead, call_costs};
pub(super) use meter::{OverheadMeter, Reaction, Sample};
pub(super) use warning::CostOptions;
