//! Generations of mappings: each process has a number that changes whenever its executable mappings do. Stacks of
//! different generations are different stacks.
//!
//! The programs detect a new generation by the number of executable pages. This number changes as soon as a library
//! is unmapped. The dynamic linker allocates before it maps another library there, so a stack is taken between the unmap and
//! the map. For processes that replace code without an allocation, user space removes the entry when it receives an mmap event.

use core::ptr::read_volatile;

use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{MAX_PROCESSES, Process};

use super::vma;
use crate::atomic;

#[btf_map]
static PROCS: HashMap<u32, Process, MAX_PROCESSES> = HashMap::new();

/// The last generation that was assigned.
#[btf_map]
static GENERATION: Array<u64, 1> = Array::new();

/// Mask of the counter of generations. The generations are 1 to 2^31; after the last one, the first is assigned
/// again.
const GENERATIONS: u32 = (1 << 31) - 1;

/// Stands for a missing entry: generation 0 is never assigned, and process 0 is the idle process.
///
/// With an `Option` the compiler could spill uninitialised fields, which the verifier refuses.
const NO_ENTRY: Process = Process { pid: 0, generation: 0, code_pages: 0 };

/// Returns the entry of the current process. If its executable mappings have changed, makes a new entry. Returns
/// `None` if the process's number of executable pages cannot be read.
#[inline(always)]
pub fn get(pid: u32) -> Option<Process> {
    // The entry is copied before it is checked: the memory of a replaced entry can become the entry of another
    // process at once (`htab_map_update_elem`, kernel/bpf/hashtab.c). SAFETY: the memory of a removed entry remains a
    // value of this map.
    let known = match unsafe { PROCS.get(&pid) } {
        // SAFETY: as above.
        Some(known) => unsafe { read_volatile(known) },
        None => NO_ENTRY,
    };
    let code_pages = vma::exec_pages()?;
    if known.pid == pid && known.code_pages == code_pages {
        return Some(known);
    }
    let last = GENERATION.get_ptr_mut(0)?;
    // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
    let generation = (unsafe { atomic::fetch_add(last, 1) } as u32 & GENERATIONS) + 1;
    let mut process = Process { pid, generation, code_pages };
    // If the map is full, each stack has its own generation, and no later stack finds its cached look-ups.
    if PROCS.insert(&pid, &process, 0).is_err() {
        process.pid = NO_ENTRY.pid;
    }
    Some(process)
}

/// Returns the seed for the ids of the process's stacks. It has the process id and the generation, because equal
/// addresses under different mappings are different stacks.
///
/// If the map of processes is full, the seed has no generation: otherwise the frames of every stack would be sent.
#[inline(always)]
pub fn seed(pid: u32, process: &Process) -> u64 {
    let generation = if process.pid == NO_ENTRY.pid { 0 } else { process.generation };
    (pid as u64 + 1) | (generation as u64) << 32
}

#[inline(always)]
pub fn forget(pid: u32) {
    let _ = PROCS.remove(&pid);
}

/// Copies the parent's entry to a forked process.
#[inline(always)]
pub fn copy(parent: u32, child: u32) {
    // SAFETY: the memory of a removed entry remains a value of this map.
    if let Some(known) = unsafe { PROCS.get(&parent) } {
        let process = Process { pid: child, ..*known };
        let _ = PROCS.insert(&child, &process, 0);
    }
}
