//! Comparison of traced totals with kernel counters and page tables, at the end of a run.

pub mod residency;
pub mod rusage;
