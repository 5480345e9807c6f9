//! BPF programs at the tracepoints of processes, cgroups and system calls.

use std::collections::BTreeMap;
use std::iter;

use memtrace_common::wire::{REDUNDANT_PROGRAMS, SYSCALL_TRACEPOINTS, filter_key};

use super::bpf::Bpf;
use super::counters::RedundantRuns;
use super::error::KernelError;
use super::faults;
use super::process_filter::ProcessFilter;
use crate::procfs;

/// Tracepoint and its programs, in the order of their runs.
struct Tracepoint {
    name: &'static str,
    first: &'static str,
    /// Program that takes the place of `first` on kernels that can preempt raw programs.
    unpreempted: Option<&'static str>,
    /// Programs that do the work of `first` if the kernel skips it.
    redundant: [&'static str; REDUNDANT_PROGRAMS as usize - 1],
    /// Program that prefetches VMAs. Nothing is lost if the kernel skips it.
    prefetch: Option<&'static str>,
}

/// Category of the tracepoints of processes.
const SCHED: &str = "sched";

/// Tracepoints of processes. The redundant programs count the events that they handle in place of the first program.
const PROCESS: &[Tracepoint] = &[
    Tracepoint {
        name: "sched_process_exec",
        first: "process_exec",
        unpreempted: Some("process_exec_unpreempted"),
        redundant: ["process_exec_2", "process_exec_3"],
        prefetch: Some("process_exec_prefetch"),
    },
    Tracepoint {
        name: "sched_process_exit",
        first: "process_exit",
        unpreempted: Some("process_exit_unpreempted"),
        redundant: ["process_exit_2", "process_exit_3"],
        prefetch: None,
    },
    Tracepoint {
        name: "sched_process_fork",
        first: "process_fork",
        // An unpreempted program cannot be used: the record of the tracepoint does not contain the child's task.
        unpreempted: None,
        redundant: ["process_fork_2", "process_fork_3"],
        prefetch: None,
    },
];

/// Tracepoint of renamed threads. It is needed if processes are selected by name.
const RENAME: Tracepoint = Tracepoint {
    name: "task_rename",
    first: "task_rename",
    unpreempted: None,
    redundant: ["task_rename_2", "task_rename_3"],
    prefetch: None,
};

/// Tracepoints of processes that move to another cgroup. They are needed if processes are selected by cgroup. Each program has
/// the name of its tracepoint.
const CGROUP_MOVES: [&str; 2] = ["cgroup_attach_task", "cgroup_transfer_tasks"];

/// Name of the tracepoint of removed cgroups, and of the program there.
const CGROUP_REMOVAL: &str = "cgroup_rmdir";

/// Program at faults in the kernel. It runs with interrupts disabled (`handle_page_fault`, arch/x86/mm/fault.c), so the
/// kernel skips it only for a fault that the program itself causes. The program reads memory with page faults disabled:
/// such a read fails, and no page becomes present.
const FAULTS_IN_KERNEL: &str = "page_fault_kernel";

/// Tracepoints of system calls. A call is missed only if all programs are skipped. So the number of missed calls is at
/// most the number of skipped runs of any one program. Most skipped calls are not relevant. If only `first` is
/// attached, it prefetches too.
const SYSCALLS: [Tracepoint; SYSCALL_TRACEPOINTS as usize] = [
    Tracepoint {
        name: "sys_enter",
        first: "sys_enter",
        unpreempted: None,
        redundant: ["sys_enter_2", "sys_enter_3"],
        prefetch: None,
    },
    Tracepoint {
        name: "sys_exit",
        first: "sys_exit",
        unpreempted: None,
        redundant: ["sys_exit_2", "sys_exit_3"],
        prefetch: Some("sys_exit_prefetch"),
    },
];

impl Tracepoint {
    /// Returns the interchangeable raw programs: `first` and the redundant ones.
    fn programs(&self) -> impl Iterator<Item = &'static str> {
        iter::once(self.first).chain(self.redundant)
    }

    /// Returns the programs that can be the first one. Only one of them is attached.
    fn first_programs(&self) -> impl Iterator<Item = &'static str> {
        iter::once(self.first).chain(self.unpreempted)
    }

    /// Returns the programs of all kernels.
    fn all_programs(&self) -> impl Iterator<Item = &'static str> {
        self.first_programs().chain(self.redundant).chain(self.prefetch)
    }

    /// Returns the raw programs that are needed, in the order of their runs. If the kernel can preempt raw programs,
    /// `attach_unpreempted` attaches the program that runs before them, or returns false.
    fn raw_programs(
        &self,
        is_preemptible: bool,
        attach_unpreempted: impl FnOnce(&'static str) -> bool,
    ) -> Vec<&'static str> {
        let is_replaced = self.unpreempted.filter(|_| is_preemptible).is_some_and(attach_unpreempted);
        self.programs().skip(usize::from(is_replaced)).collect()
    }

    /// Attaches the programs. `is_preemptible`: true if the kernel can preempt raw programs.
    fn attach(&self, bpf: &mut Bpf, is_preemptible: bool) -> Result<(), KernelError> {
        let attach_unpreempted = |name| bpf.attach_unpreempted(name, SCHED, self.name);
        let programs = self.raw_programs(is_preemptible, attach_unpreempted);
        programs.into_iter().chain(self.prefetch).try_for_each(|name| bpf.attach_tracepoint(name, self.name))
    }
}

/// Attaches the programs of processes. Programs run in attachment order (`func_add`, kernel/tracepoint.c).
/// `is_after_others`: true if programs that must run earlier are attached to the same tracepoints.
pub(super) fn attach_process(bpf: &mut Bpf, is_after_others: bool) -> Result<(), KernelError> {
    // If perf has another user, it has registered its callback already. An unpreempted program would then run before
    // all raw programs.
    let is_preemptible = !is_after_others && has_preemptible_programs();
    PROCESS.iter().try_for_each(|tracepoint| tracepoint.attach(bpf, is_preemptible))
}

/// Attaches the programs at changes of a process that can change the result of `filter`.
pub(super) fn attach_filter(bpf: &mut Bpf, filter: &ProcessFilter) -> Result<(), KernelError> {
    if filter.is_by(filter_key::COMM) {
        RENAME.attach(bpf, false)?;
    }
    if filter.is_by(filter_key::CGROUP) {
        CGROUP_MOVES.iter().try_for_each(|name| bpf.attach_tracepoint(name, name))?;
    }
    Ok(())
}

/// Attaches the program at the removal of cgroups.
pub(super) fn attach_cgroup_removal(bpf: &mut Bpf) -> Result<(), KernelError> {
    bpf.attach_tracepoint(CGROUP_REMOVAL, CGROUP_REMOVAL)
}

/// Attaches `count` programs to each tracepoint of system calls.
pub(super) fn attach_syscalls(bpf: &mut Bpf, count: u32) -> Result<(), KernelError> {
    SYSCALLS.iter().try_for_each(|tracepoint| match count {
        0 => Ok(()),
        1 => bpf.attach_tracepoint(tracepoint.first, tracepoint.name),
        _ => tracepoint.attach(bpf, false),
    })
}

/// Returns the number of programs that each tracepoint of system calls needs.
pub(super) fn programs_per_syscall() -> u32 {
    if has_preemptible_programs() { REDUNDANT_PROGRAMS } else { 1 }
}

/// Returns true if raw programs at tracepoints can be preempted ("tracing: Guard __DECLARE_TRACE() use of
/// __DO_TRACE_CALL() with SRCU-fast", Linux 7.0). A trial cannot detect this. A wrong `true` only costs redundant
/// programs.
fn has_preemptible_programs() -> bool {
    procfs::kernel_release().is_some_and(|release| is_preemptible_in(&release))
}

fn is_preemptible_in(release: &str) -> bool {
    procfs::kernel_version(release).is_some_and(|(major, _)| major >= 7)
}

/// Returns the number of missed events. `by_program` has the number of skipped runs of each program.
pub(super) fn missed(by_program: &BTreeMap<&str, u64>, redundant_runs: RedundantRuns) -> u64 {
    let syscalls = SYSCALLS.iter().zip(redundant_runs.all_busy);
    let in_syscalls: u64 =
        syscalls.map(|(tracepoint, all_busy)| missed_syscalls(tracepoint, by_program, all_busy)).sum();
    let processes = || PROCESS.iter().chain([&RENAME]);
    let first_programs = processes().flat_map(Tracepoint::first_programs);
    let in_processes: u64 = first_programs.filter_map(|program| by_program.get(program)).sum();
    let is_at_tracepoint = |name: &str| {
        processes().chain(&SYSCALLS).any(|tracepoint| tracepoint.all_programs().any(|program| program == name))
    };
    let records_nothing = |name: &str| [FAULTS_IN_KERNEL, faults::HUGE_PAGE_BEGIN].contains(&name);
    let others = by_program.iter().filter(|(name, _)| !is_at_tracepoint(name) && !records_nothing(name));
    let in_others: u64 = others.map(|(_, missed)| *missed).sum();
    in_syscalls + in_processes.saturating_sub(redundant_runs.stood_in) + in_others
}

/// Returns an upper bound of the missed system calls at `tracepoint`. With several programs, a call is missed only if
/// all of them were in progress.
fn missed_syscalls(tracepoint: &Tracepoint, by_program: &BTreeMap<&str, u64>, all_busy: u64) -> u64 {
    let programs: Vec<u64> = tracepoint.programs().filter_map(|program| by_program.get(program).copied()).collect();
    if programs.len() > 1 && all_busy == 0 { 0 } else { programs.into_iter().min().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_events_without_a_substitute_run_are_missed() {
        let programs = BTreeMap::from([("process_exec", 3), ("process_exec_2", 40), ("alloc", 500)]);
        assert_eq!(missed(&programs, RedundantRuns { stood_in: 2, all_busy: [0, 0] }), 501);
        assert_eq!(missed(&programs, RedundantRuns { stood_in: 4, all_busy: [0, 0] }), 500);
    }

    #[test]
    fn unpreempted_programs_count_as_the_first_ones() {
        let programs = BTreeMap::from([
            ("process_exec_unpreempted", 3),
            ("process_exec_2", 40),
            ("process_exit_unpreempted", 2),
            ("process_exit_3", 7),
            ("process_fork", 1),
        ]);
        let missed_with = |stood_in| missed(&programs, RedundantRuns { stood_in, all_busy: [0, 0] });
        assert_eq!([0, 4, 6].map(missed_with), [6, 2, 0]);
    }

    #[test]
    fn an_unpreempted_program_replaces_the_first_raw_one() {
        let programs = |index: usize, is_preemptible: bool, is_available: bool| {
            let mut names = Vec::new();
            let raw = PROCESS[index].raw_programs(is_preemptible, |name| {
                names.extend(is_available.then_some(name));
                is_available
            });
            names.extend(raw);
            names
        };
        let raw = ["process_exec", "process_exec_2", "process_exec_3"];
        assert_eq!([(false, true), (true, false)].map(|(it, available)| programs(0, it, available)), [raw, raw]);
        assert_eq!(programs(0, true, true), ["process_exec_unpreempted", "process_exec_2", "process_exec_3"]);
        assert_eq!(programs(1, true, true), ["process_exit_unpreempted", "process_exit_2", "process_exit_3"]);
        assert_eq!(programs(2, true, true), ["process_fork", "process_fork_2", "process_fork_3"]);
    }

    #[test]
    fn faults_of_own_reads_are_not_missed() {
        let programs = BTreeMap::from([("page_fault_kernel", 3), ("page_fault_user", 20), ("huge_page_begin", 1)]);
        assert_eq!(missed(&programs, RedundantRuns::default()), 20);
    }

    #[test]
    fn syscalls_are_missed_only_if_all_programs_were_running() {
        let three = BTreeMap::from([("sys_exit", 70), ("sys_exit_2", 1), ("sys_exit_3", 6)]);
        let missed_with = |programs, all_busy| missed(programs, RedundantRuns { stood_in: 0, all_busy });
        assert_eq!([[0, 0], [2, 0], [0, 2]].map(|all_busy| missed_with(&three, all_busy)), [0, 0, 1]);
        // A single program.
        assert_eq!(missed_with(&BTreeMap::from([("sys_enter", 2)]), [0, 0]), 2);
    }

    #[test]
    fn programs_are_preemptible_since_linux_7() {
        let preemptible = ["5.10.0-44-amd64", "6.18.5", "7.0.0-rc1", "7.2-amd64", "10.0", ""].map(is_preemptible_in);
        assert_eq!(preemptible, [false, false, true, true, true, false]);
    }
}
