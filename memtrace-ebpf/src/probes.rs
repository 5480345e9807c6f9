//! The programs, one file for each family of probes. No file imports another.

#[cfg(not(feature = "legacy"))]
mod activity;
mod alloc;
#[cfg(not(feature = "legacy"))]
mod count;
mod fault;
mod free;
mod mapping;
mod mark;
mod process;
mod realloc;
mod reclaim;
mod results;
mod returns;
mod signal;
mod tag;
#[cfg(not(feature = "legacy"))]
mod threads;
