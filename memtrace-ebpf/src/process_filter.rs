//! The process filter: decides which processes are traced.
//!
//! If probes are attached for all processes, a process is matched against the filters at its first probe hit. The
//! decision holds until the process calls exec.

use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::generated::{bpf_get_current_ancestor_cgroup_id, bpf_get_current_uid_gid};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{FilterKey, MAX_DECISIONS, MAX_FILTERS, decision, filter_action, filter_key, filter_mode};

use crate::settings::{self, field};
use crate::{file_id, kernel};

/// Decisions by process: flags of [`decision`].
#[btf_map]
static DECISIONS: HashMap<u32, u32, MAX_DECISIONS> = HashMap::new();

/// The filters: actions of [`filter_action`] by property and value.
#[btf_map]
static FILTERS: HashMap<FilterKey, u32, MAX_FILTERS> = HashMap::new();

/// Number of cgroup levels that are examined.
const MAX_LEVELS: i32 = 16;

/// Returns true if the current process, `pid`, is traced.
#[inline(always)]
pub fn is_traced(pid: u32) -> bool {
    if settings::filter_mode() == filter_mode::ATTACHED {
        return true;
    }
    match decision(pid) {
        Some(decision) => decision & decision::TRACED != 0,
        None => settings::filter_mode() == filter_mode::MATCHING && filter_decide(pid, kernel::current_task()) != 0,
    }
}

/// Returns true if the current process, `pid`, was traced before the exec that it has just made. If there was no
/// decision, its old properties are lost, and the default is returned.
#[inline(always)]
pub fn was_traced_before_exec(pid: u32) -> bool {
    match decision(pid) {
        Some(decision) => decision & decision::TRACED != 0,
        None => {
            settings::filter_mode() == filter_mode::ATTACHED
                || settings::filter_mode() == filter_mode::MATCHING && settings::is_traced_by_default()
        }
    }
}

/// Returns true if forks, execs and exits of `pid` are recorded. A process without a decision may be traced later, and
/// user space numbers the executables of each process from its start.
#[inline(always)]
pub fn records_lifetime(pid: u32) -> bool {
    settings::filter_mode() == filter_mode::MATCHING
        || decision(pid).is_some_and(|decision| decision & decision::TRACED != 0)
}

/// Handles a fork. In a process tree the child inherits the decision. If rusage is recorded, the child (`task`) is
/// decided at once, because it may call exec before it hits a probe.
#[inline(always)]
pub fn fork(parent: u32, child: u32, task: u64) {
    if settings::filter_mode() == filter_mode::TREES
        && let Some(decision) = decision(parent)
    {
        let _ = DECISIONS.insert(&child, &decision, 0);
    }
    if settings::filter_mode() == filter_mode::MATCHING && settings::has_rusage() {
        filter_decide(child, task);
    }
}

/// Handles an exec: the new executable is decided at its first probe hit.
#[inline(always)]
pub fn exec(pid: u32) {
    if settings::filter_mode() == filter_mode::MATCHING
        && decision(pid).is_some_and(|decision| decision & decision::FIXED == 0)
    {
        let _ = DECISIONS.remove(&pid);
    }
}

/// Handles an exit: the pid may be reused.
#[inline(always)]
pub fn exit(pid: u32) {
    if settings::filter_mode() != filter_mode::ATTACHED {
        let _ = DECISIONS.remove(&pid);
    }
}

#[inline(always)]
fn decision(pid: u32) -> Option<u32> {
    // SAFETY: a word is read as a whole.
    unsafe { DECISIONS.get(&pid) }.copied()
}

/// Decides whether process `pid` of `task` is traced, stores the decision, and returns it as 1 or 0. The process is the
/// current one, or has its user and cgroup. It is a global function, so that it is not verified for each probe.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn filter_decide(pid: u32, task: u64) -> u64 {
    let actions = matching_actions(task);
    let traced = actions & filter_action::EXCLUDE == 0 && (settings::is_traced_by_default() || actions != 0);
    let value = if traced { decision::TRACED } else { 0 };
    // If the map is full, each event decides again.
    let _ = DECISIONS.insert(&pid, &value, 0);
    traced as u64
}

/// Returns the actions of all filters that match the process.
#[inline(always)]
fn matching_actions(task: u64) -> u32 {
    // SAFETY: the helper takes nothing.
    let user = unsafe { bpf_get_current_uid_gid() } as u32;
    let mut actions = action(filter_key::USER, [user as u64, 0]);
    if let Some(comm) = comm(task) {
        actions |= action(filter_key::COMM, comm);
    }
    let mut executable = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if let Some(file) =
        kernel::read(task, field!(vma.task_mm)).and_then(|mm| kernel::read(mm, field!(task.mm_exe_file)))
        && file_id::read(file, &mut executable).is_some()
    {
        actions |= action(filter_key::EXE, [executable.inode, executable.device as u64]);
    }
    if settings::filters_by_cgroup() {
        for level in 0..MAX_LEVELS {
            // SAFETY: the helper takes any level.
            match unsafe { bpf_get_current_ancestor_cgroup_id(level) } {
                0 => break,
                cgroup => actions |= action(filter_key::CGROUP, [cgroup, 0]),
            }
        }
    }
    actions
}

#[inline(always)]
fn action(property: u64, value: [u64; 2]) -> u32 {
    // SAFETY: a word is read as a whole.
    unsafe { FILTERS.get(&FilterKey { property, value }) }.copied().unwrap_or(0)
}

/// Returns the name of the process's first thread.
#[inline(always)]
fn comm(task: u64) -> Option<[u64; 2]> {
    kernel::read(kernel::read(task, field!(task.task_group_leader))?, field!(task.task_comm))
}
