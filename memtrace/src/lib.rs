//! memtrace shows who holds the memory of a running Linux system.
//!
//! The folders are the stages of the way of the data, and `ARCHITECTURE.md` says which may import which; `cargo xtask
//! tidy` holds them to it. [`model`] has the nouns that all of them share.

pub mod cli;
pub mod kernel;
pub mod ledger;
pub mod model;
pub mod pipeline;
pub mod report;
pub mod session;
pub mod symbolize;
pub mod target;
pub mod unwind;
