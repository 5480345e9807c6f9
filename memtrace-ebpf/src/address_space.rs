//! Processes that share the address space of another process: children of vfork, and of clone with `CLONE_VM`.
//!
//! Such a child is a process of its own, but it uses the blocks, pages and mappings of its parent. The main process of
//! an address space is the process that had it first. The others are sharers, until they exit or call exec. Records of
//! blocks, pages and mappings go to the rings that the pid of the main process selects.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::MAX_SHARERS;

use crate::{atomic, loss};

/// Main process of the address space of each sharer, by process id of the sharer.
#[btf_map]
static MAIN_PROCESSES: HashMap<u32, u32, MAX_SHARERS> = HashMap::new();

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
    if MAIN_PROCESSES.insert(&child, &main_process(parent), 0).is_err() {
        loss::count(context, LossReason::SharersFull, 1);
        return false;
    }
    add_sharers(1);
    true
}

/// Handles the exit or exec of process `pid`, or the start of another one with this pid.
#[inline(always)]
pub fn forget(pid: u32) {
    if is_any_shared() && MAIN_PROCESSES.remove(&pid).is_ok() {
        add_sharers(1_u64.wrapping_neg());
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
    SHARERS.get(0).is_some_and(|&sharers| sharers != 0)
}

#[inline(always)]
fn add_sharers(count: u64) {
    if let Some(sharers) = SHARERS.get_ptr_mut(0) {
        // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
        unsafe { atomic::add(sharers, count) };
    }
}
