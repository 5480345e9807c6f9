//! The process filter: decides which processes are traced.
//!
//! If probes are attached for all processes, a process is matched against the filters at its first probe hit. The
//! decision holds until the process calls exec, or one of its properties may have changed: each hit compares the user,
//! and the number of changes of cgroups and names, with those of the decision.

use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap};
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_get_current_uid_gid};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{
    Decision, FilterKey, HIERARCHIES, MAX_DECISIONS, MAX_FILTERS, decision, filter_action, filter_key, filter_mode,
    thread_filter,
};

use crate::settings::{self, field};
use crate::{atomic, cgroup, file_id, kernel};

/// Decisions by process.
#[btf_map]
static DECISIONS: HashMap<u32, Decision, MAX_DECISIONS> = HashMap::new();

/// The filters: actions of [`filter_action`] by property and value.
#[btf_map]
static FILTERS: HashMap<FilterKey, u32, MAX_FILTERS> = HashMap::new();

/// Number of changes of cgroups and names so far, by any process.
#[btf_map]
static CHANGES: Array<u64, 1> = Array::new();

/// New names of processes. A name changes after its tracepoint, so a program that reads it then may see the old one.
#[btf_map]
static NAMES: LruHashMap<u32, [u64; 2], 4096> = LruHashMap::new();

/// Number of cgroup levels that are examined.
const MAX_LEVELS: u32 = 16;

/// Returns the flags of [`decision`] for the current process, `pid`.
#[inline(always)]
pub fn flags(pid: u32) -> u32 {
    match settings::filter_mode() {
        filter_mode::ATTACHED => decision::TRACED,
        filter_mode::MATCHING => match decision(pid) {
            Some(known) if is_current(&known) => known.flags,
            _ => filter_decide(pid, kernel::current_task()) as u32,
        },
        _ => decision(pid).map_or(0, |known| known.flags),
    }
}

/// Returns true if the current process, `pid`, is traced.
#[inline(always)]
pub fn is_traced(pid: u32) -> bool {
    flags(pid) & decision::TRACED != 0
}

/// Returns true if allocations of the current thread are recorded.
#[inline(always)]
pub fn is_thread_recorded() -> bool {
    if settings::thread_filter() == thread_filter::ALL {
        return true;
    }
    let mut value = [0_u64; 2];
    // SAFETY: the helper writes as many bytes as there are: the name, and zeros after it.
    unsafe { bpf_get_current_comm(value.as_mut_ptr().cast(), size_of_val(&value) as u32) };
    // SAFETY: user space writes the filters before the first event, as words.
    match unsafe { FILTERS.get(&FilterKey { property: filter_key::THREAD, value }) } {
        Some(&action) => action == filter_action::INCLUDE,
        None => settings::thread_filter() == thread_filter::NOT_EXCLUDED,
    }
}

/// Returns true if the current process, `pid`, was traced before the exec that it has just made. If there was no
/// decision, its old properties are lost, and the default is returned.
#[inline(always)]
pub fn was_traced_before_exec(pid: u32) -> bool {
    match decision(pid) {
        Some(known) => known.flags & decision::TRACED != 0,
        None => {
            settings::filter_mode() == filter_mode::ATTACHED
                || settings::filter_mode() == filter_mode::MATCHING && settings::is_traced_by_default()
        }
    }
}

/// Returns true if `pid` is traced, or if this depends on properties of the process. Forks, execs and exits of such processes
/// are recorded: a process without a decision may be traced later, and user space numbers the executables of each process
/// from its start.
#[inline(always)]
pub fn may_be_traced(pid: u32) -> bool {
    settings::filter_mode() == filter_mode::MATCHING
        || decision(pid).is_some_and(|known| known.flags & decision::TRACED != 0)
}

/// Returns true if `pid` is traced, or was and has recorded memory.
#[inline(always)]
pub fn has_records(pid: u32) -> bool {
    decision(pid).is_some_and(|known| known.flags & (decision::TRACED | decision::RECORDED) != 0)
}

/// Handles a fork. In a process tree the child inherits the decision. If rusage is recorded, the child (`task`) is
/// decided at once, because it may call exec before it hits a probe.
#[inline(always)]
pub fn fork(parent: u32, child: u32, task: u64) {
    if settings::filter_mode() == filter_mode::TREES
        && let Some(known) = decision(parent)
    {
        let _ = DECISIONS.insert(&child, &known, 0);
    }
    if settings::filter_mode() != filter_mode::MATCHING {
        return;
    }
    // The child has copies of the recorded memory.
    if settings::records_forks() && decision(parent).is_some_and(|known| known.flags & decision::RECORDED != 0) {
        let flags = decision::RECORDED | decision::UNDECIDED;
        let _ = DECISIONS.insert(&child, &Decision { flags, user: 0, changes: 0 }, 0);
    }
    if settings::has_rusage() {
        filter_decide(child, task);
    }
}

/// Handles an exec: the new executable is decided at its first probe hit.
#[inline(always)]
pub fn exec(pid: u32) {
    if settings::filter_mode() != filter_mode::MATCHING {
        return;
    }
    if decision(pid).is_some_and(|known| known.flags & decision::FIXED == 0) {
        let _ = DECISIONS.remove(&pid);
    }
    if settings::filters_by_comm() {
        let _ = NAMES.remove(pid);
    }
}

/// Handles an exit: the pid may be reused.
#[inline(always)]
pub fn exit(pid: u32) {
    if settings::filter_mode() != filter_mode::ATTACHED {
        let _ = DECISIONS.remove(&pid);
    }
    if settings::filters_by_comm() {
        let _ = NAMES.remove(pid);
    }
}

/// Handles a new name of process `pid`: the string at the address `name`, in the kernel.
#[inline(always)]
pub fn rename(pid: u32, name: u64) {
    let _ = NAMES.insert(pid, kernel::read_name(name, 0), 0);
    change();
}

/// Has every process decided again at its next probe hit, because some process has changed its cgroup or name.
#[inline(always)]
pub fn change() {
    if let Some(changes) = CHANGES.get_ptr_mut(0) {
        // SAFETY: the pointer is a map value's, 8 bytes and aligned.
        unsafe { atomic::add(changes, 1) };
    }
}

#[inline(always)]
fn changes() -> u64 {
    CHANGES.get(0).copied().unwrap_or(0)
}

#[inline(always)]
fn decision(pid: u32) -> Option<Decision> {
    // SAFETY: the words may be those of different decisions. Then a stored number is out of date.
    unsafe { DECISIONS.get(&pid) }.copied()
}

/// Returns true if the decision on the current process still holds.
#[inline(always)]
fn is_current(known: &Decision) -> bool {
    if known.flags & decision::FIXED != 0 {
        return true;
    }
    let has_user = !settings::filters_by_user() || known.user == current_user();
    let has_changes = !settings::filters_by_cgroup() && !settings::filters_by_comm() || known.changes == changes();
    known.flags & decision::UNDECIDED == 0 && has_user && has_changes
}

/// Returns the real user id of the current thread.
#[inline(always)]
fn current_user() -> u32 {
    // SAFETY: the helper takes nothing.
    (unsafe { bpf_get_current_uid_gid() }) as u32
}

/// Decides whether process `pid` of `task` is traced, stores the decision, and returns its flags. The process is the
/// current one, or has its user. It is a global function, so that it is not verified for each probe.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn filter_decide(pid: u32, task: u64) -> u64 {
    // Read before the properties: a later change makes the decision out of date.
    let (user, changes) = (current_user(), changes());
    let actions = matching_actions(pid, task, user);
    let traced = actions & filter_action::EXCLUDE == 0 && (settings::is_traced_by_default() || actions != 0);
    let recorded = decision(pid).map_or(0, |before| before.flags & decision::RECORDED);
    let flags = if traced { decision::TRACED | decision::RECORDED } else { recorded };
    // If the map is full, each event decides again.
    let _ = DECISIONS.insert(&pid, &Decision { flags, user, changes }, 0);
    flags as u64
}

/// Returns the actions of all filters that match the process.
#[inline(always)]
fn matching_actions(pid: u32, task: u64, user: u32) -> u32 {
    let mut actions = action(filter_key::USER, [user as u64, 0]);
    // The name and the cgroup of a process are those of its first thread.
    let leader = kernel::read_word(task, field!(task.task_group_leader));
    actions |= action(filter_key::COMM, comm(pid, leader));
    let mut executable = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if let Some(file) =
        kernel::read(task, field!(vma.task_mm)).and_then(|mm| kernel::read(mm, field!(task.mm_exe_file)))
        && file_id::read(file, &mut executable).is_some()
    {
        actions |= action(filter_key::EXE, [executable.inode, executable.device as u64]);
    }
    if settings::filters_by_cgroup() {
        for hierarchy in 0..HIERARCHIES as u32 {
            actions |= filter_cgroup_actions(leader, hierarchy) as u32;
        }
    }
    actions
}

/// Returns the actions of the filters that match the cgroup of `leader` in a hierarchy, by its place in the settings,
/// or an ancestor of that cgroup.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn filter_cgroup_actions(leader: u64, hierarchy: u32) -> u64 {
    let mut actions = 0;
    let number = cgroup::number(hierarchy);
    let mut group = cgroup::cgroup_of(leader, number);
    for _ in 0..MAX_LEVELS {
        if group == 0 {
            break;
        }
        actions |= action(filter_key::CGROUP, [cgroup::id(group), number as u64]);
        group = cgroup::parent(group);
    }
    actions as u64
}

#[inline(always)]
fn action(property: u64, value: [u64; 2]) -> u32 {
    // SAFETY: a word is read as a whole.
    unsafe { FILTERS.get(&FilterKey { property, value }) }.copied().unwrap_or(0)
}

/// Returns the name of process `pid`, whose first thread is `leader`.
#[inline(always)]
fn comm(pid: u32, leader: u64) -> [u64; 2] {
    if settings::filters_by_comm()
        // SAFETY: the words may be those of different names. Then another change follows.
        && let Some(name) = unsafe { NAMES.get(pid) }
    {
        return *name;
    }
    kernel::read_name(leader, field!(task.task_comm))
}
