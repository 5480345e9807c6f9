//! The process filter: decides which processes are traced.
//!
//! If probes are attached for all processes, a process is matched against the filters at its first probe hit. The
//! decision holds until the process calls exec, or until one of its properties may have changed. To detect such a
//! change, each hit compares the user and the count of cgroup and name changes with the values stored in the
//! decision.
//!
//! A process of memtrace is not matched again before its exec. It is recognized by its executable, its capabilities and its user,
//! but it can give up the capabilities and change the user. The name is not used, because any process could take it to hide.

use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap};
use aya_ebpf::helpers::generated::{bpf_get_current_comm, bpf_get_current_uid_gid};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{
    Decision, FilterKey, HIERARCHIES, MAX_DECISIONS, MAX_FILTERS, TRACER_CAPABILITIES, decision, filter_action,
    filter_key, filter_mode, thread_filter, tracer_value,
};

use crate::settings::{self, field};
use crate::{address_space, atomic, cgroup, file_id, kernel};

/// Decisions by process id.
#[btf_map]
static DECISIONS: HashMap<u32, Decision, MAX_DECISIONS> = HashMap::new();

/// Filters: actions of [`filter_action`], by property and value.
#[btf_map]
static FILTERS: HashMap<FilterKey, u32, MAX_FILTERS> = HashMap::new();

/// Number of changes of cgroups and names by all processes.
#[btf_map]
static CHANGES: Array<u64, 1> = Array::new();

/// New names of processes by process id. The kernel sets a name after the tracepoint, so a program may still read the old name
/// from the task.
#[btf_map]
static NAMES: LruHashMap<u32, [u64; 2], 4096> = LruHashMap::new();

/// Maximum number of cgroup levels examined.
const MAX_LEVELS: u32 = 16;

/// Returns the flags of the decision on the current process, `pid`: constants of [`decision`].
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
    // SAFETY: the helper writes the name and zeros after it, as many bytes as `value` has.
    unsafe { bpf_get_current_comm(value.as_mut_ptr().cast(), size_of_val(&value) as u32) };
    // SAFETY: user space writes the filters before the first event. The value is one word.
    match unsafe { FILTERS.get(&FilterKey { property: filter_key::THREAD, value }) } {
        Some(&action) => action == filter_action::INCLUDE,
        None => settings::thread_filter() == thread_filter::NOT_EXCLUDED,
    }
}

/// Returns true if the current process, `pid`, was traced before the exec that it has just made. If there was no
/// decision, returns the default, because the properties before the exec are lost.
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

/// Returns true if process `pid` is traced or may be traced later. Forks, execs and exits of these processes are recorded,
/// because user space numbers the images of each process from its start. Returns false for a process that is traced only
/// because it shares the memory of a listed process.
#[inline(always)]
pub fn may_be_traced(pid: u32) -> bool {
    let is_traced = |known: Decision| known.flags & (decision::TRACED | decision::SHARED) == decision::TRACED;
    settings::filter_mode() == filter_mode::MATCHING || decision(pid).is_some_and(is_traced)
}

/// Returns true if process `pid` is traced or may have recorded memory.
#[inline(always)]
pub fn has_records(pid: u32) -> bool {
    decision(pid).is_some_and(|known| known.flags & (decision::TRACED | decision::RECORDED) != 0)
}

/// Returns the flags of the decision on the memory of the current process, `pid`; 0 if its memory is not recorded.
#[inline(always)]
pub fn memory_flags(pid: u32) -> u32 {
    let flags_of = |pid| decision(pid).map_or(0, |known| known.flags);
    let flags = match settings::filter_mode() {
        // Every process may execute this program, but the probes are attached to one process.
        filter_mode::ATTACHED => flags_of(address_space::main_process(pid)),
        filter_mode::MATCHING => flags(pid),
        _ => flags_of(pid),
    };
    flags & (decision::TRACED | decision::RECORDED)
}

/// Handles a fork of a child that shares the memory of its parent. `flags`: the result of [`memory_flags`] for the
/// parent. The child is traced even if it is not selected, because it may free recorded blocks. In the mode `TREES` it is
/// selected like any other child.
#[inline(always)]
pub fn share(child: u32, flags: u32) {
    let shared = match settings::filter_mode() {
        filter_mode::ATTACHED => return,
        filter_mode::TREES => 0,
        _ => decision::SHARED,
    };
    let _ = DECISIONS.insert(&child, &Decision { flags: flags | shared, user: 0, changes: 0 }, 0);
}

/// Handles any other fork. In the mode `TREES` the child inherits the decision. In the mode `MATCHING` the child of a process
/// of memtrace belongs to memtrace too. If rusage is recorded, any other child is matched against the filters at once, because
/// it may call exec before it hits a probe. `task` is the address of the child's `task_struct`.
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
    if let Some(known) = decision(parent)
        && known.flags & decision::TRACER != 0
    {
        let flags = known.flags & (decision::TRACER | decision::UNDECIDED);
        let _ = DECISIONS.insert(&child, &Decision { flags, user: known.user, changes: 0 }, 0);
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

/// Handles an exec: removes the decision, so that the next probe hit decides again. In the mode `LISTED`, a process that was
/// traced for its shared memory is no longer traced. If the process belongs to memtrace, the user at the exec is kept for the
/// new decision.
#[inline(always)]
pub fn exec(pid: u32) {
    if settings::filter_mode() == filter_mode::LISTED
        && decision(pid).is_some_and(|known| known.flags & decision::SHARED != 0)
    {
        let _ = DECISIONS.remove(&pid);
    }
    if settings::filter_mode() != filter_mode::MATCHING {
        return;
    }
    if let Some(known) = decision(pid)
        && known.flags & decision::FIXED == 0
    {
        if known.flags & decision::TRACER != 0 {
            let flags = decision::TRACER | decision::UNDECIDED;
            let _ = DECISIONS.insert(&pid, &Decision { flags, user: current_user(), changes: 0 }, 0);
        } else {
            let _ = DECISIONS.remove(&pid);
        }
    }
    if settings::filters_by_comm() {
        let _ = NAMES.remove(pid);
    }
}

/// Handles an exit: removes the decision, because the pid may be reused.
#[inline(always)]
pub fn exit(pid: u32) {
    if settings::filter_mode() != filter_mode::ATTACHED {
        let _ = DECISIONS.remove(&pid);
    }
    if settings::filters_by_comm() {
        let _ = NAMES.remove(pid);
    }
}

/// Handles a new name of process `pid`. `name` is the kernel address of the string.
#[inline(always)]
pub fn rename(pid: u32, name: u64) {
    let _ = NAMES.insert(pid, kernel::read_name(name, 0), 0);
    change();
}

/// Makes all decisions out of date, because some process has changed its cgroup or name.
#[inline(always)]
pub fn change() {
    if let Some(changes) = CHANGES.get_ptr_mut(0) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(changes, 1) };
    }
}

#[inline(always)]
fn changes() -> u64 {
    CHANGES.get(0).copied().unwrap_or(0)
}

#[inline(always)]
fn decision(pid: u32) -> Option<Decision> {
    // SAFETY: if the entry is replaced during the copy, the copy mixes words of two decisions. In this case, one of
    // the stored numbers is out of date.
    unsafe { DECISIONS.get(&pid) }.copied()
}

/// Returns true if the decision on the current process still holds.
#[inline(always)]
fn is_current(known: &Decision) -> bool {
    let is_tracer = known.flags & (decision::TRACER | decision::UNDECIDED) == decision::TRACER;
    if is_tracer || known.flags & decision::FIXED != 0 {
        return true;
    }
    let has_user = !settings::filters_by_user() || known.user == current_user();
    let has_changes = !settings::filters_by_cgroup() && !settings::filters_by_comm() || known.changes == changes();
    known.flags & (decision::UNDECIDED | decision::SHARED) == 0 && has_user && has_changes
}

/// Returns the real user id of the current thread.
#[inline(always)]
fn current_user() -> u32 {
    // SAFETY: the helper takes nothing.
    (unsafe { bpf_get_current_uid_gid() }) as u32
}

/// Matches process `pid` against the filters, stores the decision, and returns its flags. `task` is the address of a
/// `task_struct` of the process. The process is the current one or its new child, which has the same user. The function
/// is global, so that the verifier does not check it for each probe.
///
/// A process that shares the memory of another process is not matched. Its flags are the flags of its parent at the
/// fork, plus the current flags of the main process.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn filter_decide(pid: u32, task: u64) -> u64 {
    if let Some(known) = decision(pid)
        && known.flags & decision::SHARED != 0
    {
        let main = decision(address_space::main_process(pid)).map_or(0, |main| main.flags);
        return ((known.flags | main) & (decision::TRACED | decision::RECORDED)) as u64;
    }
    // These values are read before the properties, so that a later change makes the decision out of date.
    let (user, changes) = (current_user(), changes());
    let before = decision(pid);
    // If the process has inherited the flag, the user in its decision is the user at its exec.
    let inherited = before.filter(|before| before.flags & decision::TRACER != 0);
    let actions = matching_actions(pid, task, user, inherited.map_or(user, |before| before.user));
    let is_tracer = match inherited {
        Some(_) => actions & (filter_action::TRACER | filter_action::TRACER_CHILD) != 0,
        None => actions & filter_action::TRACER != 0 && can_trace(task),
    };
    let is_included = settings::is_traced_by_default() || actions & filter_action::INCLUDE != 0;
    let flags = if is_tracer {
        decision::TRACER
    } else if is_included && actions & filter_action::EXCLUDE == 0 {
        decision::TRACED | decision::RECORDED
    } else {
        before.map_or(0, |before| before.flags & decision::RECORDED)
    };
    // If the map is full, each event matches the filters again.
    let _ = DECISIONS.insert(&pid, &Decision { flags, user, changes }, 0);
    flags as u64
}

/// Returns true if the process of `task` has a capability of tracers in the initial user namespace. Only there, a process can
/// attach BPF programs to probes.
#[inline(always)]
fn can_trace(task: u64) -> bool {
    // Some threads of memtrace give up their capabilities, but the first thread keeps them as long as it traces.
    let leader = kernel::read_word(task, field!(task.task_group_leader));
    let credentials = kernel::read_word(leader, field!(task.task_real_cred));
    let namespace = kernel::read_word(credentials, field!(task.cred_user_ns));
    kernel::read::<u32>(namespace, field!(task.user_ns_level)) == Some(0)
        && kernel::read_word(credentials, field!(task.cred_cap_effective)) & TRACER_CAPABILITIES != 0
}

/// Returns the actions of all filters that match the process. `tracer_user`: user id for the filters that recognize memtrace.
#[inline(always)]
fn matching_actions(pid: u32, task: u64, user: u32, tracer_user: u32) -> u32 {
    let mut actions = action(filter_key::USER, [user as u64, 0]);
    // A process has the name and the cgroup of its first thread.
    let leader = kernel::read_word(task, field!(task.task_group_leader));
    actions |= action(filter_key::COMM, comm(pid, leader));
    let mut executable = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if let Some(file) =
        kernel::read(task, field!(vma.task_mm)).and_then(|mm| kernel::read(mm, field!(task.mm_exe_file)))
        && file_id::read(file, &mut executable).is_some()
    {
        actions |= action(filter_key::EXE, [executable.inode, executable.device as u64]);
        let tracer = tracer_value(executable.device, tracer_user);
        actions |= action(filter_key::TRACER, [executable.inode, tracer]);
    }
    if settings::filters_by_cgroup() {
        for hierarchy in 0..HIERARCHIES as u32 {
            actions |= filter_cgroup_actions(leader, hierarchy) as u32;
        }
    }
    actions
}

/// Returns the actions of the filters that match a cgroup of `leader` or one of its ancestors. `hierarchy` is the
/// index of the cgroup's hierarchy in the settings.
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
    // SAFETY: the value is one word, which is read as a whole.
    unsafe { FILTERS.get(&FilterKey { property, value }) }.copied().unwrap_or(0)
}

/// Returns the name of process `pid`. `leader` is the address of the `task_struct` of its first thread.
#[inline(always)]
fn comm(pid: u32, leader: u64) -> [u64; 2] {
    if settings::filters_by_comm()
        // SAFETY: if the name changes during the copy, the copy mixes two names. In this case, the counted change
        // makes the decision out of date.
        && let Some(name) = unsafe { NAMES.get(pid) }
    {
        return *name;
    }
    kernel::read_name(leader, field!(task.task_comm))
}
