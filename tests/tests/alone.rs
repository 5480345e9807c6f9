//! Tests that trace, load or change the whole machine. No other test may run at the same time.

mod aggregation;
mod busy_host;
mod containers;
mod long_runs;
mod measured_overhead;
mod other_tracers;
mod overhead;
mod process_selection;
mod reclaim;
mod rusage;
mod selection_changes;
mod sharers;
mod threads;
mod untraced;
mod working_set;
