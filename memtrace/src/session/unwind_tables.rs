//! Unwind tables of the objects that traced processes map: built, written to BPF maps, and published by object.

mod builder;
mod placement;
mod publisher;
mod requests;

pub(super) use requests::UnwindTables;
