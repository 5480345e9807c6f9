//! Traced processes: their selection, their mappings and allocators, and the unwind tables of their objects.

mod bounded_set;
pub(crate) mod finished_stacks;
pub(crate) mod patched;
pub(crate) mod sample_sites;
pub(crate) mod select;
pub(crate) mod track;
pub(crate) mod unwind_tables;
