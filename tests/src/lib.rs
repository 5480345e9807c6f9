//! What the privileged tests are made of: victims that know the truth, and memtrace run beside them.
//!
//! A victim keeps its own books of what it asked its allocator for, in memory that it doesn't allocate. It waits at a
//! barrier until memtrace has attached, works, prints its books, and waits at a second one until the trace is over. So a
//! trace can be compared with the truth to the byte, without a sleep. Whatever waits has a deadline, so that what hangs
//! fails.

#![expect(clippy::panic, reason = "a test's tools fail the test")]
#![warn(clippy::missing_panics_doc)]

pub mod cgroup;
pub mod counts;
pub mod doctor;
pub mod explain;
pub mod group;
pub mod kernel;
pub mod kernel_trace;
pub mod memory;
pub mod mounts;
pub mod oracle;
pub mod outcome;
pub mod overlay;
pub mod pages;
pub mod redis;
pub mod root;
pub mod swap;
pub mod traced;
pub mod tracer;
pub mod victim;

pub use cgroup::Cgroup;
pub use counts::Counts;
pub use group::Group;
pub use harness::report::{Page, Place, Stack};
pub use harness::{Books, Numbers, Report, Scratch, Victim, books, process, report, scratch};
pub use kernel_trace::KernelTrace;
pub use oracle::Oracle;
pub use outcome::Outcome;
pub use overlay::Overlay;
pub use swap::Swap;
pub use traced::Traced;
pub use tracer::{Trace, Tracer};
