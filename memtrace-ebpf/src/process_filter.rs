//! Who is traced.
//!
//! Where probes are placed for everyone, a process is chosen when it first runs into one, by what it is at that moment, and
//! the choice is kept until it runs another program.

use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::generated::{bpf_get_current_ancestor_cgroup_id, bpf_get_current_uid_gid};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{MAX_SELECTORS, MAX_TARGETS, Selector, scope, selector, target};

use crate::{kernel, settings, unwind};

/// The processes that were chosen, and those that were not: what [`target`] says.
#[btf_map]
static TARGETS: HashMap<u32, u32, MAX_TARGETS> = HashMap::new();

/// The properties by which processes are chosen, and whether they are: what [`selector`] says.
#[btf_map]
static SELECTORS: HashMap<Selector, u32, MAX_SELECTORS> = HashMap::new();

/// So many control groups above the current one are looked at.
const MAX_LEVELS: i32 = 16;

/// Whether the current process, which is `pid`, is traced.
#[inline(always)]
pub fn traces(pid: u32) -> bool {
    if settings::scope() == scope::PROBED {
        return true;
    }
    match known(pid) {
        Some(known) => known & target::TRACED != 0,
        None => settings::scope() == scope::SELECTED && scope_choose(pid, kernel::task()) != 0,
    }
}

/// Whether the current process, which is `pid` and has just run another program, was traced before. Where it was not chosen
/// yet, what it was then is not known any more, but for what most are.
#[inline(always)]
pub fn traced_before_exec(pid: u32) -> bool {
    match known(pid) {
        Some(known) => known & target::TRACED != 0,
        None => {
            settings::scope() == scope::PROBED || settings::scope() == scope::SELECTED && settings::traced_by_default()
        }
    }
}

/// Whether it matters what becomes of `pid`. Where processes are chosen when they first run into a probe it may come to
/// matter later, and user space counts each one's programs from the beginning.
#[inline(always)]
pub fn matters(pid: u32) -> bool {
    settings::scope() == scope::SELECTED || known(pid).is_some_and(|known| known & target::TRACED != 0)
}

/// A new process is what its parent is, where families are traced. It is chosen at once where what the kernel counts of it
/// is told, since it may run another program before it runs into a probe; its task is `task`.
#[inline(always)]
pub fn fork(parent: u32, child: u32, task: u64) {
    if settings::scope() == scope::FAMILIES
        && let Some(known) = known(parent)
    {
        let _ = TARGETS.insert(&child, &known, 0);
    }
    if settings::scope() == scope::SELECTED && settings::counts::told() {
        scope_choose(child, task);
    }
}

/// The process runs another program, by which it is chosen anew.
#[inline(always)]
pub fn exec(pid: u32) {
    if settings::scope() == scope::SELECTED && known(pid).is_some_and(|known| known & target::FIXED == 0) {
        let _ = TARGETS.remove(&pid);
    }
}

/// The process has ended, and its pid may come to mean another one.
#[inline(always)]
pub fn exit(pid: u32) {
    if settings::scope() != scope::PROBED {
        let _ = TARGETS.remove(&pid);
    }
}

#[inline(always)]
fn known(pid: u32) -> Option<u32> {
    // SAFETY: a word is read as a whole.
    unsafe { TARGETS.get(&pid) }.copied()
}

/// Chooses process `pid` of `task` or not, and keeps it; 1 or 0. It is the current one, or of the same user and control group.
/// Is verified by itself, lest it be so for each probe.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn scope_choose(pid: u32, task: u64) -> u64 {
    let verdict = verdict(task);
    let traced = verdict & selector::EXCLUDE == 0 && (settings::traced_by_default() || verdict != 0);
    let value = if traced { target::TRACED } else { 0 };
    // Where there is no room, each of its events asks anew.
    let _ = TARGETS.insert(&pid, &value, 0);
    traced as u64
}

/// What the selectors say of the process, all together.
#[inline(always)]
fn verdict(task: u64) -> u32 {
    // SAFETY: the helper takes nothing.
    let user = unsafe { bpf_get_current_uid_gid() } as u32;
    let mut verdict = said(selector::USER, [user as u64, 0]);
    if let Some(comm) = comm(task) {
        verdict |= said(selector::COMM, comm);
    }
    let mut program = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if let Some(file) = kernel::read(task, settings::areas::task_memory())
        .and_then(|memory| kernel::read(memory, settings::memory_exe()))
        && unwind::read_object(file, &mut program).is_some()
    {
        verdict |= said(selector::EXE, [program.inode, program.device as u64]);
    }
    if settings::selects_by_cgroup() {
        for level in 0..MAX_LEVELS {
            // SAFETY: the helper takes any level.
            match unsafe { bpf_get_current_ancestor_cgroup_id(level) } {
                0 => break,
                group => verdict |= said(selector::CGROUP, [group, 0]),
            }
        }
    }
    verdict
}

#[inline(always)]
fn said(property: u64, value: [u64; 2]) -> u32 {
    // SAFETY: a word is read as a whole.
    unsafe { SELECTORS.get(&Selector { property, value }) }.copied().unwrap_or(0)
}

/// The name of the process' first thread.
#[inline(always)]
fn comm(task: u64) -> Option<[u64; 2]> {
    kernel::read(kernel::read(task, settings::task_leader())?, settings::task_comm())
}
