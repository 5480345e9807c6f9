//! The programs that follow processes and threads, at tracepoints of the kernel.

use std::iter;
use std::os::fd::AsFd as _;

use aya::Ebpf;
use aya::programs::RawTracePoint;

use super::counters;
use super::error::KernelError;

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
pub(super) fn follow(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    for tracepoint in ALL {
        for name in iter::once(tracepoint.first).chain(tracepoint.others.iter().copied()) {
            let action = format!("follow {}", tracepoint.name);
            let missing = || KernelError::Failed {
                action: format!("use {name}"),
                reason: String::from("the kernel half does not have it"),
            };
            let program = ebpf.program_mut(name).ok_or_else(missing)?;
            let program: &mut RawTracePoint = program.try_into().map_err(|_| missing())?;
            program.load().map_err(|error| KernelError::from_load(&action, &error))?;
            program.attach(tracepoint.name).map_err(|error| KernelError::from_error(&action, &error))?;
        }
    }
    Ok(())
}

/// How often the first programs were not run. For some of that others stood in.
pub(super) fn missed_by_first(ebpf: &Ebpf) -> u64 {
    let missed = |tracepoint: &Tracepoint| {
        ebpf.program(tracepoint.first)?.fd().ok().map(|program| counters::missed(program.as_fd()))
    };
    ALL.iter().filter_map(missed).sum()
}
