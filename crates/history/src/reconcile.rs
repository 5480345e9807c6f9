//! Comparison of traced totals with kernel counters and page tables, after a run.

pub mod residency;
pub mod rusage;
