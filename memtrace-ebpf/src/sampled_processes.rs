//! Processes whose allocations are sampled. A run can sample the page faults of all other processes. The page faults of the
//! processes here are left out, so that no process is in both samples.

use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::wire::{MAX_SAMPLED_PROCESSES, sampled_process};

use crate::address_space;

/// 1 after user space has inserted a process. As long as it is 0, page faults need no look-up in [`SAMPLED_PROCESSES`].
#[btf_map]
static HAS_SAMPLED_PROCESSES: Array<u64, 1> = Array::new();

/// Constants of [`sampled_process`] by process id. If the map is full, user space ignores the page faults that are recorded.
#[btf_map]
static SAMPLED_PROCESSES: HashMap<u32, u32, MAX_SAMPLED_PROCESSES> = HashMap::new();

/// Returns true if the allocations in the memory of process `pid` are sampled.
#[inline(always)]
pub fn contains(pid: u32) -> bool {
    is_any_sampled() && value(pid).is_some()
}

/// Handles a fork.
#[inline(always)]
pub fn fork(parent: u32, child: u32) {
    if !is_any_sampled() {
        return;
    }
    if value(parent) == Some(sampled_process::WITH_CHILDREN) {
        let _ = SAMPLED_PROCESSES.insert(&child, &sampled_process::WITH_CHILDREN, 0);
    } else {
        // If user space inserted an earlier process with this pid during its exit, the entry is still there.
        let _ = SAMPLED_PROCESSES.remove(&child);
    }
}

/// Handles the exec or exit of process `pid`.
#[inline(always)]
pub fn forget(pid: u32) {
    if is_any_sampled() {
        let _ = SAMPLED_PROCESSES.remove(&pid);
    }
}

/// Returns the value of the main process in the address space of process `pid`.
#[inline(always)]
fn value(pid: u32) -> Option<u32> {
    let main = address_space::main_process(pid);
    // SAFETY: the value is one word, which is read as a whole.
    unsafe { SAMPLED_PROCESSES.get(&main) }.copied()
}

#[inline(always)]
fn is_any_sampled() -> bool {
    HAS_SAMPLED_PROCESSES.get(0).is_some_and(|&flag| flag != 0)
}
