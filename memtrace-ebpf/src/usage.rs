//! Usage of threads: counters for runs that record no events.
//!
//! Each thread has heap counters in task storage, which the kernel frees with the task ([`thread_counts`]). The
//! probes of allocators add to them ([`calls`]). The size of a block is in front of it, as in glibc, or in a map
//! ([`sizes`]). The kernel maintains the other counters of a thread ([`task`]). When a thread exits, its counters
//! are added to the sums of its process ([`processes`]), together with the counters that its allocator keeps in the memory of
//! the process ([`allocator_counters`]).

pub mod allocator_counters;
pub mod calls;
pub mod processes;
mod sizes;
pub mod task;
mod thread_counts;
