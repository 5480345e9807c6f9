//! Control groups of the memory controller: in whose account a task waits, or for whose limit.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::MAX_GROUPS;

use crate::kernel::{self, word};
use crate::{atomic, gate, settings};

/// How many inactive pages were looked at for the limit of each group that something has waited in, whoever waited.
#[btf_map]
static GROUPS: LruHashMap<u64, u64, MAX_GROUPS> = LruHashMap::new();

/// So many pages are put aside for a processor when a group's memory is counted (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const BATCH: u64 = 64;

/// So many groups above one are looked at.
const MAX_LEVELS: u32 = 16;

/// A group above is taken for the one whose limit was met as long as no more than one part in so many of it is free.
const NEARLY: u64 = 8;

/// The group that the memory of the current task is counted in: its id, and 0 where that is not known.
#[inline(always)]
pub fn own() -> u64 {
    of(kernel::task())
}

/// As [`own`], of any task.
#[inline(always)]
pub fn of(task: u64) -> u64 {
    groups_of(task)
}

/// Whose limit the current task waits for; the group is `told` where the kernel says so, else 0.
#[inline(always)]
pub fn at_its_limit(told: u64) -> u64 {
    if told != 0 {
        return if settings::groups::known() { id(told) } else { 0 };
    }
    groups_fullest(u64::MAX)
}

/// The group, that of the current task or one above, in which there is room for nothing more.
#[inline(always)]
pub fn full() -> u64 {
    groups_fullest(BATCH)
}

/// Counts what was scanned for a group's limit.
#[inline(always)]
pub fn scanned(group: u64, pages: u64) {
    if group != 0 {
        groups_scanned(group, pages);
    }
}

/// Has a frame of its own, since the programs that end a wait have little left beside what it takes to walk a stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn groups_scanned(group: u64, pages: u64) -> u64 {
    let mut sum = GROUPS.get_ptr_mut(&group);
    if sum.is_none() {
        // Where somebody was faster, both are counted there.
        let _ = GROUPS.insert(&group, &0, gate::IF_NEW);
        sum = GROUPS.get_ptr_mut(&group);
    }
    let Some(sum) = sum else { return 0 };
    // SAFETY: the pointer is a map value's, 8 bytes and aligned.
    unsafe { atomic::add(sum, pages) };
    1
}

/// The group of `task`. Is verified by itself, as those below, lest it be so for each program.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn groups_of(task: u64) -> u64 {
    if settings::groups::known() { id(of_task(task)) } else { 0 }
}

/// Of the current task's group and those above the innermost full one, or else the fullest, as long as there is room for less
/// than `below` pages in it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn groups_fullest(below: u64) -> u64 {
    if !settings::groups::known() {
        return 0;
    }
    let memory = settings::groups::memory() as u64;
    let mut group = of_task(kernel::task());
    let mut fullest = 0;
    let mut least = below;
    for _ in 0..MAX_LEVELS {
        if group == 0 {
            break;
        }
        // The counters are added to from the innermost out, and the first that is full refuses
        // (`page_counter_try_charge`, mm/page_counter.c). Who looks for pages beside may have made room since.
        let room = groups_room(group);
        if room < least {
            least = room;
            fullest = group;
        }
        let above = word(group + memory, settings::groups::parent());
        group = if room == 0 || above == 0 { 0 } else { above - memory };
    }
    if fullest == 0 { 0 } else { id(fullest) }
}

/// How many pages a group lets pass; as if there were no limit where it is not even near it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn groups_room(group: u64) -> u64 {
    let memory = room(group + settings::groups::memory() as u64);
    // Version 2, whose hierarchy is number 0, counts swap alone there, and looks for no pages for its limit.
    let node = word(group, settings::groups::group());
    let hierarchy = word(word(node, settings::groups::root()), settings::groups::hierarchy()) as u32;
    if hierarchy == 0 { memory } else { memory.min(room(group + settings::groups::with_swap() as u64)) }
}

#[inline(always)]
fn room(counter: u64) -> u64 {
    let usage = word(counter, settings::groups::usage());
    let most = word(counter, settings::groups::max()).min(word(counter, settings::groups::high()));
    let free = most.saturating_sub(usage);
    if free > most / NEARLY { u64::MAX } else { free }
}

/// The group that the task's memory is counted in; 0 where it has none, as the kernel's own threads.
#[inline(always)]
fn of_task(task: u64) -> u64 {
    // `get_mem_cgroup_from_mm`, mm/memcontrol.c.
    let memory = word(task, settings::groups::task_memory());
    if memory == 0 {
        return 0;
    }
    let owner = word(memory, settings::groups::owner());
    word(word(owner, settings::groups::task_groups()), settings::groups::memory_group())
}

#[inline(always)]
fn id(group: u64) -> u64 {
    word(word(word(group, settings::groups::group()), settings::groups::node()), settings::groups::id())
}
