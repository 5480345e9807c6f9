//! Control groups of the memory controller: in whose account a task waits, or for whose limit.

use core::ffi::c_void;
use core::ptr::from_mut;

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::MAX_GROUPS;

use crate::{atomic, settings};

/// How many inactive pages were looked at for the limit of each group that something has waited in, whoever waited.
#[btf_map]
static GROUPS: LruHashMap<u64, u64, MAX_GROUPS> = LruHashMap::new();

/// So many groups above one are looked at.
const MAX_LEVELS: u32 = 16;

/// A group above is taken for the one whose limit was met as long as no more than one part in so many of it is free.
const NEARLY: u64 = 8;

/// In whose account the current task waits: the group's id, and 0 where that is not known.
#[inline(always)]
pub fn own() -> u64 {
    groups_find(0, 0)
}

/// Whose limit the current task waits for; the group is `told` where the kernel says so, else 0.
#[inline(always)]
pub fn at_its_limit(told: u64) -> u64 {
    groups_find(told, 1)
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
        let _ = GROUPS.insert(&group, &0, BPF_NOEXIST);
        sum = GROUPS.get_ptr_mut(&group);
    }
    let Some(sum) = sum else { return 0 };
    // SAFETY: the pointer is a map value's, 8 bytes and aligned.
    unsafe { atomic::add(sum, pages) };
    1
}

/// Is verified by itself, lest it be so for each program.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn groups_find(told: u64, for_a_limit: u64) -> u64 {
    if !settings::groups::known() {
        return 0;
    }
    let group = if told != 0 { told } else { of_current() };
    if group == 0 {
        return 0;
    }
    if for_a_limit == 0 || told != 0 {
        return id(group);
    }
    let node = word(group, settings::groups::group());
    let hierarchy = word(word(node, settings::groups::root()), settings::groups::hierarchy()) as u32;
    let mut nearest = 0;
    let mut least = u64::MAX;
    let mut each = group;
    for _ in 0..MAX_LEVELS {
        let counter = each + settings::groups::memory();
        let mut free = room(counter);
        // Version 2, whose hierarchy is number 0, counts swap alone there, and looks for no pages for its limit.
        if hierarchy != 0 {
            free = free.min(room(each + settings::groups::with_swap()));
        }
        // The counters are added to from the innermost out, and the first that is full refuses
        // (`page_counter_try_charge`, mm/page_counter.c). Who looks for pages beside may have made room since.
        if free < least {
            least = free;
            nearest = each;
        }
        let above = word(counter, settings::groups::parent());
        if free == 0 || above == 0 {
            break;
        }
        each = above - settings::groups::memory();
    }
    if nearest == 0 { 0 } else { id(nearest) }
}

/// How many pages a counter lets pass; none where it is at its limit, and as if there were no limit where it is not even
/// near it.
#[inline(always)]
fn room(counter: u64) -> u64 {
    let usage = word(counter, settings::groups::usage());
    let most = word(counter, settings::groups::max()).min(word(counter, settings::groups::high()));
    let free = most.saturating_sub(usage);
    if free > most / NEARLY { u64::MAX } else { free }
}

/// The group that the current task's memory is counted in; 0 where it has none, as the kernel's own threads.
#[inline(always)]
fn of_current() -> u64 {
    // SAFETY: the helper takes nothing.
    let task = unsafe { bpf_get_current_task() };
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

/// What lies `offset` bytes behind `base`; 0 where nothing does.
#[inline(always)]
fn word(base: u64, offset: u64) -> u64 {
    let mut word = 0u64;
    // SAFETY: the helper checks the address, writes as many bytes as there is room for, and zeros where it cannot read; the
    // offsets are those of the running kernel's own type information.
    unsafe { bpf_probe_read_kernel(from_mut(&mut word).cast(), size_of::<u64>() as u32, (base + offset) as *const c_void) };
    word
}

/// include/uapi/linux/bpf.h
const BPF_NOEXIST: u64 = 1;
