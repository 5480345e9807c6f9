//! Usage of threads: counters for runs that record no events.
//!
//! Each thread has counters in the storage of its task, which the kernel frees with the task ([`thread_counts`]). Probes of
//! allocators add to them ([`calls`]). The size of a block is in front of it, as in glibc, or in a map ([`sizes`]). The
//! other counters of a thread are the kernel's ([`task`]). When a thread exits, they are added to those of its process
//! ([`processes`]).

pub mod calls;
pub mod processes;
mod sizes;
pub mod task;
mod thread_counts;
