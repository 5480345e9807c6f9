//! Unwind tables of the objects that traced processes map: built, written to BPF maps, and published by object.

mod builder;
mod copy_thread;
mod cut_stacks;
mod eviction;
mod placed_tables;
mod placement;
mod publisher;
mod requests;
mod table_writer;

pub(crate) use requests::{UnwindLimits, UnwindTables};
