//! The attached programs, one file for each family of probes. These files do not import one another.

mod activity;
mod alloc;
mod count;
mod fault;
mod free;
mod huge_page;
mod mapping;
mod mark;
mod memory_locks;
mod patched;
mod process;
mod realloc;
mod reclaim;
mod results;
mod returns;
mod sampled;
mod signal;
mod tag;
mod threads;
