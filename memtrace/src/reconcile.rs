//! Comparison of traced totals with kernel counters and page tables, after a run.

pub(crate) mod residency;
pub(crate) mod rusage;
