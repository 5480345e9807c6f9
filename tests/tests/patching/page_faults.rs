//! Page faults of the processes whose allocations a trace of the whole machine does not sample.

mod alone;
