//! One file a family of probes. None imports another.

mod alloc;
mod fault;
mod free;
mod mapping;
mod process;
mod realloc;
mod reclaim;
mod returns;
