//! memtrace shows who holds the memory of a running Linux system.
//!
//! The folders are the stages of the way of the data, and `ARCHITECTURE.md` says which may import which; `cargo xtask
//! tidy` holds them to it. [`model`] has the nouns that all of them share.

pub mod allocators;
pub mod cli;
pub(crate) mod doctor;
pub mod eh_frame;
pub(crate) mod elf;
pub(crate) mod explain;
pub mod kernel;
pub(crate) mod launch;
pub mod ledger;
pub(crate) mod loader;
pub(crate) mod mmap_events;
pub mod model;
pub mod pipeline;
pub mod probe_site;
pub(crate) mod procfs;
pub(crate) mod reconcile;
pub(crate) mod registry;
pub mod report;
#[cfg(test)]
mod scratch;
pub(crate) mod session;
pub mod symbolize;
