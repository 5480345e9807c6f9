//! Unwind tables of the objects that traced processes map: built, written to BPF maps, and published by object.

mod builder;
mod copy_thread;
mod cut_stacks;
mod eviction;
mod placement;
mod publisher;
mod requests;

pub(super) use requests::UnwindTables;
