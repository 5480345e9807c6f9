//! Selection of the processes to trace and of the probes to place in their allocators.

pub(super) mod filter;
mod targets;

pub(super) use targets::{Site, Subject};
