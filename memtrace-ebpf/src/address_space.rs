//! Processes that share the address space of another process: children of vfork, and of clone with `CLONE_VM`.
//!
//! Such a child is a process of its own, but it uses the blocks, pages and mappings of its parent. The main process of
//! an address space is the process that had it first. The others are sharers, until they exit or call exec. Records of
//! blocks, pages and mappings go to the rings that the pid of the main process selects, even after it has exited.

use core::ptr::read_volatile;

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{MAIN_HAS_EXITED, MAX_SHARERS};

use crate::limits::BPF_NOEXIST;
use crate::{atomic, loss};

/// Value in [`MAIN_PROCESSES`] for a sharer that has exited, but whose exit record is missing in a ring.
const NO_PROCESS: u32 = 0;

/// Number of sharers up to which entries of ended sharers are kept: a quarter of the entries of the smallest map. With more
/// sharers, the entries of ended sharers would leave no room for running sharers.
const MAX_KEPT: u64 = 128;

/// Main process of the address space of each sharer, by process id of the sharer.
#[btf_map]
static MAIN_PROCESSES: HashMap<u32, u32, MAX_SHARERS> = HashMap::new();

/// Number of sharers of each main process, by its process id, with the bit [`MAIN_HAS_EXITED`]. An entry is removed when the
/// main process and all sharers have exited, or when the main process calls exec.
#[btf_map]
static SHARER_COUNTS: HashMap<u32, u64, MAX_SHARERS> = HashMap::new();

/// Number of sharers. If it is 0, records need no look-up in [`MAIN_PROCESSES`].
#[btf_map]
static SHARERS: Array<u64, 1> = Array::new();

/// Returns the main process of the address space of process `pid`: the process itself if it is no sharer.
#[inline(always)]
pub fn main_process(pid: u32) -> u32 {
    if is_any_shared() { address_space_main_process(pid) as u32 } else { pid }
}

/// Returns true if process `pid` shares the address space of another process.
#[inline(always)]
pub fn is_sharer(pid: u32) -> bool {
    if !is_any_shared() {
        return false;
    }
    // SAFETY: the value is not read.
    unsafe { MAIN_PROCESSES.get(&pid) }.is_some()
}

/// Records that the new process `child` shares the address space of process `parent`. Returns false if there are too
/// many sharers.
#[inline(always)]
pub fn share(context: &impl EbpfContext, parent: u32, child: u32) -> bool {
    let main = main_process(parent);
    if MAIN_PROCESSES.insert(&child, &main, 0).is_err() {
        loss::count(context, LossReason::SharersFull, 1);
        return false;
    }
    add_sharers(1);
    let _ = SHARER_COUNTS.insert(&main, &0, BPF_NOEXIST);
    add_to_count(main, 1);
    true
}

/// Handles the exit of process `pid`. Returns true if other processes share its memory.
#[inline(always)]
pub fn exit(pid: u32) -> bool {
    let Some(count) = SHARER_COUNTS.get_ptr_mut(&pid) else { return false };
    // If the last sharer leaves at the same time, both processes may handle the end of the memory.
    // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
    unsafe { atomic::or(count, MAIN_HAS_EXITED) };
    // SAFETY: as above.
    let is_shared = unsafe { read_volatile(count) } != MAIN_HAS_EXITED;
    if !is_shared {
        let _ = SHARER_COUNTS.remove(&pid);
    }
    is_shared
}

/// Handles the exit or exec of process `pid` before its last record, or the start of another process with this pid. If
/// process `pid` was the last sharer of a main process that has exited, returns the main process.
#[inline(always)]
pub fn leave(pid: u32) -> Option<u32> {
    if !is_any_shared() {
        return None;
    }
    // SAFETY: the value is one word, which is read as a whole.
    let main = *unsafe { MAIN_PROCESSES.get(&pid) }?;
    if add_to_count(main, 1_u64.wrapping_neg()) != Some(MAIN_HAS_EXITED | 1) {
        return None;
    }
    let _ = SHARER_COUNTS.remove(&main);
    Some(main)
}

/// Handles the start of process `pid`, or its exec, after which it has new memory. Returns true if an earlier process with
/// this pid exited before its sharers.
#[inline(always)]
pub fn forget_sharers(pid: u32) -> bool {
    // SAFETY: the value is one word, which is read as a whole.
    let count = unsafe { SHARER_COUNTS.get(&pid) }.copied();
    let _ = SHARER_COUNTS.remove(&pid);
    count.is_some_and(|count| count & MAIN_HAS_EXITED != 0)
}

/// Handles the exit or exec of process `pid` after its last record, or the start of another process with this pid. Returns
/// true if `pid` was the id of a sharer.
#[inline(always)]
pub fn forget(pid: u32) -> bool {
    let was_sharer = is_any_shared() && MAIN_PROCESSES.remove(&pid).is_ok();
    if was_sharer {
        add_sharers(1_u64.wrapping_neg());
    }
    was_sharer
}

/// Handles the exit of process `pid` if its record is missing in a ring. The entry stays until another process with
/// this pid starts.
#[inline(always)]
pub fn keep_ended(pid: u32) {
    if sharers() > MAX_KEPT {
        forget(pid);
    } else if is_sharer(pid) {
        let _ = MAIN_PROCESSES.insert(&pid, &NO_PROCESS, 0);
    }
}

/// Does the work of [`main_process`]. The function is global, because the programs at returns have little stack left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn address_space_main_process(pid: u32) -> u64 {
    // SAFETY: the value is one word, which is read as a whole.
    unsafe { MAIN_PROCESSES.get(&pid) }.copied().unwrap_or(pid) as u64
}

#[inline(always)]
fn is_any_shared() -> bool {
    sharers() != 0
}

#[inline(always)]
fn sharers() -> u64 {
    SHARERS.get(0).map_or(0, |&sharers| sharers)
}

/// Adds `count` to the number of sharers of process `main`. Returns the previous number; `None` if the process has had no sharer.
#[inline(always)]
fn add_to_count(main: u32, count: u64) -> Option<u64> {
    let sharers = SHARER_COUNTS.get_ptr_mut(&main)?;
    // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
    Some(unsafe { atomic::fetch_add(sharers, count) })
}

#[inline(always)]
fn add_sharers(count: u64) {
    if let Some(sharers) = SHARERS.get_ptr_mut(0) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(sharers, count) };
    }
}
