//! Kernel counters and page tables read at the start of a run, during it and at its end.

pub(super) mod memcgs;
mod pages;
pub(super) mod reclaim;

pub(super) use pages::PageReader;
pub(super) use reclaim::ReclaimReader;
