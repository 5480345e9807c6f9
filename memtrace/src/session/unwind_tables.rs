//! Unwind tables of the objects that traced processes map: built, written to BPF maps, and published by object.

mod builder;
mod publisher;
mod requests;

pub(super) use requests::Tables;
