//! memtrace shows which code holds the memory of a running Linux system.
//!
//! `ARCHITECTURE.md` describes the modules and the data flow between them. The import rules are checked by `cargo xtask
//! tidy`. [`model`] contains the types that all modules share.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub(crate) mod accounts;
pub mod activity;
pub mod allocators;
pub(crate) mod cache_directory;
pub mod cli;
pub(crate) mod debuginfod;
pub(crate) mod doctor;
pub mod eh_frame;
pub(crate) mod elf;
pub(crate) mod explain;
pub mod history;
pub mod kernel;
pub(crate) mod launch;
pub mod ledger;
pub(crate) mod loader;
pub(crate) mod mmap_events;
pub mod model;
pub mod monitor;
pub mod pipeline;
pub(crate) mod pmu;
pub mod probe_site;
pub(crate) mod procfs;
pub(crate) mod reconcile;
pub(crate) mod registry;
pub mod report;
#[cfg(test)]
mod scratch;
pub(crate) mod session;
pub mod symbolize;
pub(crate) mod tags;
pub mod triggers;
