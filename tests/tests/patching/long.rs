//! Many sessions: attach and detach under load, deaths at random moments, and coverage of the intervals.
//!
//! The tests scale with the environment variable `MEMTRACE_CYCLES`, the number of cycles of attach and detach: 200 by default.

#![expect(clippy::print_stdout, reason = "the tests print the measured numbers")]

mod coverage;
mod cycles;
mod kills;
mod other_tracers;

use std::env;

/// Number of cycles of attach and detach in the long tier.
const CYCLES: u64 = 200;

/// Words before the path of memtrace: on a busy machine, most of the time would pass while it starts.
const FIRST: &[&str] = &["nice", "-n", "-19"];

/// Returns a number of repetitions in the long tier, scaled to the number of cycles in the environment.
pub(super) fn cycles_of(repetitions: u64) -> u64 {
    let cycles = env::var("MEMTRACE_CYCLES").map_or(CYCLES, |number| number.parse().expect("a number of cycles"));
    (repetitions * cycles).div_ceil(CYCLES)
}
