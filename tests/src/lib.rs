//! Support code of the privileged tests: memtrace attached to victims, and references to compare with its reports.
//!
//! A victim keeps the totals of its own allocator calls, in memory that it does not allocate. It waits at a barrier
//! until memtrace has attached, works, prints its totals, and waits at a second barrier until the trace has ended. So a
//! test can compare a report with the expected totals to the byte, and needs no sleeps. Every wait has a time limit.

#![expect(clippy::panic, reason = "a failure of the support code fails the test")]

pub mod accounts;
pub mod activity;
pub mod breakpoints;
pub mod bytes_of_text;
pub mod cgroup;
pub mod count_shim;
pub mod debuginfod;
pub mod doctor;
pub mod explain;
pub mod go_profile;
pub mod go_releases;
pub mod kernel;
pub mod kernel_trace;
pub mod killed_recording;
pub mod lane;
pub mod large_file;
pub mod mark;
pub mod memory_cgroup;
pub mod mounts;
pub mod opens;
pub mod oracle;
pub mod outcome;
pub mod overlay;
pub mod page_counts;
pub mod patch_stub;
pub mod patch_zoo;
pub mod perfetto;
pub mod pids;
pub mod poll;
pub mod pprof;
pub mod recording_report;
pub mod redis;
pub mod root;
pub mod swap;
pub mod threads;
pub mod totals_by_tag;
pub mod traced;
pub mod tracer;
pub mod uprobe;
pub mod victim;
pub mod wall_clock;
pub mod working_set;

pub use activity::Activity;
pub use cgroup::Cgroup;
pub use count_shim::CountShim;
pub use go_profile::GoProfile;
pub use harness::report::{CallSite, Explanation, Stack};
pub use harness::{Report, Scratch, Totals, Victim, VictimTotals, process, report, scratch, totals};
pub use kernel_trace::KernelTrace;
pub use memory_cgroup::MemoryCgroup;
pub use oracle::Oracle;
pub use outcome::Outcome;
pub use overlay::Overlay;
pub use swap::Swap;
pub use traced::{Traced, TracedTogether};
pub use tracer::{Trace, Tracer};
