//! Support code of the tests and benchmarks: child processes, victims, scratch directories, and a
//! reader of memtrace's JSON.
//!
//! A function that fails panics with a message that names the process or file. This fails the test
//! or ends the benchmark. Every wait has a time limit.

#![expect(clippy::panic, reason = "a failure ends the test or the benchmark")]

pub mod fixtures;
pub mod heap;
pub mod process;
pub mod random;
pub mod report;
pub mod scratch;
pub mod socket;
pub mod totals;
pub mod victim;

pub use process::Process;
pub use random::Random;
pub use report::Report;
pub use scratch::Scratch;
pub use totals::{Totals, VictimTotals};
pub use victim::Victim;
