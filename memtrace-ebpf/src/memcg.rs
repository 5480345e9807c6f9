//! Memory cgroups: the memcg that a task's memory is charged to, and the memcg at its limit.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::MAX_MEMCGS;

use crate::kernel::{current_task, read_word};
use crate::limits::BPF_NOEXIST;
use crate::settings::field;
use crate::{atomic, settings};

/// Number of inactive pages that tasks have scanned because a memcg was at its limit, by the id of the memcg.
#[btf_map]
static MEMCG_SCANNED: LruHashMap<u64, u64, MAX_MEMCGS> = LruHashMap::new();

/// Number of pages that a CPU charges in advance (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const BATCH: u64 = 64;

/// Maximum number of levels examined: a memcg and its ancestors.
const MAX_LEVELS: u32 = 16;

/// Divisor of the limit of a memcg. The memcg is near its limit if its free memory is at most the limit divided by this number.
const NEARLY: u64 = 8;

/// Returns the id of the current task's memcg, 0 if it is not known.
#[inline(always)]
pub fn of_current() -> u64 {
    of_task(current_task())
}

/// Returns the id of the memcg of `task`, the address of a `task_struct`; 0 if it is not known.
#[inline(always)]
pub fn of_task(task: u64) -> u64 {
    memcg_of_task(task)
}

/// Returns the id of the memcg whose limit makes the current task reclaim pages; 0 if this memcg is not known. `memcg` is the
/// address of the memcg, or 0 if the tracepoint has no such argument.
#[inline(always)]
pub fn at_limit(memcg: u64) -> u64 {
    if memcg != 0 {
        return if settings::has_memcgs() { id(memcg) } else { 0 };
    }
    memcg_fullest(u64::MAX)
}

/// Returns the id of a full memcg: the current task's memcg or an ancestor of it, with fewer than [`BATCH`] free pages.
/// Returns 0 if no memcg is full.
#[inline(always)]
pub fn full() -> u64 {
    memcg_fullest(BATCH)
}

/// Adds `pages` to the pages scanned for the limit of the memcg with this id; 0 is ignored.
#[inline(always)]
pub fn add_scanned(memcg: u64, pages: u64) {
    if memcg != 0 {
        memcg_add_scanned(memcg, pages);
    }
}

/// Does the work of [`add_scanned`]. The function is global, because the programs at the end of reclaim have little stack left
/// after a walk.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn memcg_add_scanned(memcg: u64, pages: u64) -> u64 {
    let mut sum = MEMCG_SCANNED.get_ptr_mut(&memcg);
    if sum.is_none() {
        // If another CPU has inserted the entry first, both add to it.
        let _ = MEMCG_SCANNED.insert(&memcg, &0, BPF_NOEXIST);
        sum = MEMCG_SCANNED.get_ptr_mut(&memcg);
    }
    let Some(sum) = sum else { return 0 };
    // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
    unsafe { atomic::add(sum, pages) };
    1
}

/// Returns the id of the memcg of `task`. The function is global, like the functions below, so that the verifier checks
/// it once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn memcg_of_task(task: u64) -> u64 {
    if settings::has_memcgs() { id(memcg(task)) } else { 0 }
}

/// Searches the current task's memcg and its ancestors. Returns the id of the innermost memcg without a free page;
/// else, the id of the memcg with the fewest free pages, if it has fewer than `below`; else 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn memcg_fullest(below: u64) -> u64 {
    if !settings::has_memcgs() {
        return 0;
    }
    let memory = field!(memcg.memcg_memory) as u64;
    let mut current = memcg(current_task());
    let mut fullest = 0;
    let mut least = below;
    for _ in 0..MAX_LEVELS {
        if current == 0 {
            break;
        }
        // The kernel charges the counters from the innermost memcg outwards, and fails at the first full counter
        // (`page_counter_try_charge`, mm/page_counter.c). Another task may have reclaimed pages since.
        let free = memcg_free(current);
        if free < least {
            least = free;
            fullest = current;
        }
        let parent = read_word(current + memory, field!(memcg.counter_parent));
        current = if free == 0 || parent == 0 { 0 } else { parent - memory };
    }
    if fullest == 0 { 0 } else { id(fullest) }
}

/// Returns the number of pages that a memcg can still charge; `u64::MAX` if it is far from its limit.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn memcg_free(memcg: u64) -> u64 {
    let memory = free(memcg + field!(memcg.memcg_memory) as u64);
    // In cgroup version 2 (hierarchy 0), `memsw` counts swap alone, and the kernel does not reclaim for its limit.
    let cgroup = read_word(memcg, field!(memcg.memcg_cgroup));
    let hierarchy = read_word(read_word(cgroup, field!(memcg.cgroup_root)), field!(memcg.root_hierarchy_id)) as u32;
    if hierarchy == 0 { memory } else { memory.min(free(memcg + field!(memcg.memcg_memsw) as u64)) }
}

/// Returns the number of free pages of a `page_counter`; `u64::MAX` if it is far from its limit.
#[inline(always)]
fn free(counter: u64) -> u64 {
    let usage = read_word(counter, field!(memcg.counter_usage));
    let limit = read_word(counter, field!(memcg.counter_max)).min(read_word(counter, field!(memcg.counter_high)));
    let free = limit.saturating_sub(usage);
    if free > limit / NEARLY { u64::MAX } else { free }
}

/// Returns the address of the memcg that the task's memory is charged to; 0 for kernel threads (`get_mem_cgroup_from_mm`,
/// mm/memcontrol.c).
#[inline(always)]
fn memcg(task: u64) -> u64 {
    let mm = read_word(task, field!(memcg.task_mm));
    if mm == 0 {
        return 0;
    }
    let owner = read_word(mm, field!(memcg.mm_owner));
    read_word(read_word(owner, field!(memcg.task_cgroups)), field!(memcg.css_set_memory))
}

#[inline(always)]
fn id(memcg: u64) -> u64 {
    let cgroup = read_word(memcg, field!(memcg.memcg_cgroup));
    read_word(read_word(cgroup, field!(memcg.cgroup_kn)), field!(memcg.kernfs_id))
}
