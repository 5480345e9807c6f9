//! memtrace shows which code holds the memory of a running Linux system.
//!
//! `ARCHITECTURE.md` describes the modules and the data flow between them. `cargo xtask tidy` checks the permitted
//! imports. The crate `memtrace-model` contains the types that all modules share.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod cli;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod options;
pub(crate) mod replay;
pub(crate) mod run_kit;
pub(crate) mod targets;
pub(crate) mod threads;
pub(crate) mod trace;
pub(crate) mod working_set;
