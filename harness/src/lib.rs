//! Support code of the tests and benchmarks: child processes, victims, scratch directories, and a reader of memtrace's JSON.
//!
//! A function that cannot do its work panics with a message that names the process or file, which fails the test or ends the
//! benchmark. Every wait has a time limit.

#![expect(clippy::panic, reason = "a failure ends the test or the benchmark")]

pub mod books;
pub mod process;
pub mod report;
pub mod scratch;
pub mod victim;

pub use books::{Books, Numbers};
pub use process::Process;
pub use report::Report;
pub use scratch::Scratch;
pub use victim::Victim;
