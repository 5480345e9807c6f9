//! The programs that follow processes and threads, at tracepoints of the kernel.

use std::iter;

use super::error::KernelError;
use super::load::Kernel;

/// A tracepoint and its programs, in the order in which they run.
struct Tracepoint {
    name: &'static str,
    first: &'static str,
    /// They do what the first was not run for, and count that they did; and one without which nothing is missed.
    others: &'static [&'static str],
}

const ALL: &[Tracepoint] = &[
    Tracepoint {
        name: "sched_process_exec",
        first: "process_exec",
        others: &["process_exec_again", "process_exec_still", "process_exec_announce"],
    },
    Tracepoint {
        name: "sched_process_exit",
        first: "process_exit",
        others: &["process_exit_again", "process_exit_still"],
    },
    Tracepoint {
        name: "sched_process_fork",
        first: "process_fork",
        others: &["process_fork_again", "process_fork_still"],
    },
];

/// Loads and attaches all of them. They run in the order in which they were attached (`func_add`, kernel/tracepoint.c).
pub(super) fn follow(kernel: &mut Kernel) -> Result<(), KernelError> {
    for tracepoint in ALL {
        for name in iter::once(tracepoint.first).chain(tracepoint.others.iter().copied()) {
            kernel.follow_tracepoint(name, tracepoint.name)?;
        }
    }
    Ok(())
}

/// Whether nothing is missed where the program `name` is not run: the first one's misses are what counts.
pub(super) fn is_other(name: &str) -> bool {
    ALL.iter().any(|tracepoint| tracepoint.others.contains(&name))
}
