//! Kernel counters and page tables read at the start of a run, during it and at its end.

mod memcgs;
mod over_time;
mod pages;
mod reclaim;

pub(super) use memcgs::paths_of;
pub(super) use over_time::{MemorySampler, Readings};
pub(super) use pages::PageReader;
pub(super) use reclaim::{MeasuredReclaim, ReclaimReader};
