//! The programs that follow processes and threads, at tracepoints of the kernel.

use std::collections::BTreeMap;
use std::iter;

use memtrace_common::wire::{REDUNDANT_PROGRAMS, SYSCALL_TRACEPOINTS};

use super::counters::Turns;
use super::error::KernelError;
use super::load::Kernel;
use crate::procfs;

/// A tracepoint and its programs, in the order in which they run.
struct Tracepoint {
    name: &'static str,
    first: &'static str,
    /// They do what the first was not run for; of processes they count that they did.
    others: [&'static str; REDUNDANT_PROGRAMS as usize - 1],
    /// Does something beside, of which nothing is missed where it is not run. It asks the kernel for mappings.
    beside: Option<&'static str>,
}

const ALL: &[Tracepoint] = &[
    Tracepoint {
        name: "sched_process_exec",
        first: "process_exec",
        others: ["process_exec_2", "process_exec_3"],
        beside: Some("process_exec_prefetch"),
    },
    Tracepoint {
        name: "sched_process_exit",
        first: "process_exit",
        others: ["process_exit_2", "process_exit_3"],
        beside: None,
    },
    Tracepoint {
        name: "sched_process_fork",
        first: "process_fork",
        others: ["process_fork_2", "process_fork_3"],
        beside: None,
    },
];

/// System calls, of which most do not matter: what no program was run for is no more than what any of them was not. Where one
/// program follows them, it does what there would be to do beside.
const CALLS: [Tracepoint; SYSCALL_TRACEPOINTS as usize] = [
    Tracepoint { name: "sys_enter", first: "sys_enter", others: ["sys_enter_2", "sys_enter_3"], beside: None },
    Tracepoint {
        name: "sys_exit",
        first: "sys_exit",
        others: ["sys_exit_2", "sys_exit_3"],
        beside: Some("sys_exit_prefetch"),
    },
];

impl Tracepoint {
    /// Those that take turns.
    fn programs(&self) -> impl Iterator<Item = &'static str> {
        iter::once(self.first).chain(self.others)
    }

    fn follow(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        self.programs().try_for_each(|name| kernel.follow_tracepoint(name, self.name))?;
        match self.beside {
            Some(name) if kernel.tables().finds_mappings() => kernel.follow_tracepoint(name, self.name),
            _ => Ok(()),
        }
    }
}

/// Loads and attaches all of them. They run in the order in which they were attached (`func_add`, kernel/tracepoint.c).
pub(super) fn follow(kernel: &mut Kernel) -> Result<(), KernelError> {
    ALL.iter().try_for_each(|tracepoint| tracepoint.follow(kernel))
}

/// Has system calls followed, each by as many programs as that.
pub(super) fn follow_calls(kernel: &mut Kernel, programs: u32) -> Result<(), KernelError> {
    CALLS.iter().try_for_each(|tracepoint| match programs {
        0 => Ok(()),
        1 => kernel.follow_tracepoint(tracepoint.first, tracepoint.name),
        _ => tracepoint.follow(kernel),
    })
}

/// How many programs it takes to follow a system call.
pub(super) fn programs_a_call() -> u32 {
    if are_preempted() { REDUNDANT_PROGRAMS } else { 1 }
}

/// Whether programs at tracepoints can be preempted ("tracing: Guard __DECLARE_TRACE() use of __DO_TRACE_CALL() with
/// SRCU-fast", Linux 7.0): no trial would tell. What is taken to be so has the calls seen by more programs than it needs.
fn are_preempted() -> bool {
    procfs::kernel_release().is_some_and(|release| is_preempting(&release))
}

fn is_preempting(release: &str) -> bool {
    release.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 7)
}

/// What was missed, by how often each program was not run.
pub(super) fn missed(by_program: &BTreeMap<&str, u64>, turns: Turns) -> u64 {
    let calls = CALLS.iter().zip(turns.all_busy);
    let of_calls: u64 = calls.map(|(tracepoint, all_busy)| missed_of_calls(tracepoint, by_program, all_busy)).sum();
    let of_processes: u64 = ALL.iter().filter_map(|tracepoint| by_program.get(tracepoint.first)).sum();
    let is_judged_apart = |name: &str| {
        ALL.iter()
            .chain(&CALLS)
            .any(|tracepoint| tracepoint.programs().chain(tracepoint.beside).any(|program| program == name))
    };
    let of_others: u64 = by_program.iter().filter(|(name, _)| !is_judged_apart(name)).map(|(_, missed)| *missed).sum();
    of_calls + of_processes.saturating_sub(turns.stood_in) + of_others
}

/// Of system calls nothing is missed where several programs were never all in progress.
fn missed_of_calls(tracepoint: &Tracepoint, by_program: &BTreeMap<&str, u64>, all_busy: u64) -> u64 {
    let programs: Vec<u64> = tracepoint.programs().filter_map(|program| by_program.get(program).copied()).collect();
    if programs.len() > 1 && all_busy == 0 { 0 } else { programs.into_iter().min().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_processes_what_the_first_program_missed_counts_where_no_other_stood_in() {
        let programs = BTreeMap::from([("process_exec", 3), ("process_exec_2", 40), ("alloc", 500)]);
        assert_eq!(missed(&programs, Turns { stood_in: 2, all_busy: [0, 0] }), 501);
        assert_eq!(missed(&programs, Turns { stood_in: 4, all_busy: [0, 0] }), 500);
    }

    #[test]
    fn of_calls_what_each_program_missed_counts_where_all_were_in_progress() {
        let three = BTreeMap::from([("sys_exit", 70), ("sys_exit_2", 1), ("sys_exit_3", 6)]);
        let missed_with = |programs, all_busy| missed(programs, Turns { stood_in: 0, all_busy });
        assert_eq!([[0, 0], [2, 0], [0, 2]].map(|all_busy| missed_with(&three, all_busy)), [0, 0, 1]);
        // Where there is one program it stands for all.
        assert_eq!(missed_with(&BTreeMap::from([("sys_enter", 2)]), [0, 0]), 2);
    }

    #[test]
    fn programs_are_preempted_since_linux_7() {
        let told = ["5.10.0-44-amd64", "6.18.5", "7.0.0-rc1", "7.2-amd64", "10.0", ""].map(is_preempting);
        assert_eq!(told, [false, false, true, true, true, false]);
    }
}
