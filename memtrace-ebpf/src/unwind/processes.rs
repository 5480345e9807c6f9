//! Generations of processes: each process has a number that changes whenever its mappings do. Stacks of different
//! generations are different stacks.
//!
//! The programs maintain these entries. They detect a new generation by the number of executable pages, which changes as soon
//! as a library is unmapped; before another library takes its place, the dynamic linker allocates, and a stack is taken. User
//! space also removes entries when it receives an mmap event, for processes that replace code without allocating.

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

/// Number of generations. After the last one, the first is assigned again.
const GENERATIONS: u32 = (1 << 31) - 1;

/// No entry: generation 0 is never assigned, and process 0 is the idle process.
///
/// With an `Option` the compiler could save uninitialised fields, which the verifier refuses.
const NO_ENTRY: Process = Process { pid: 0, generation: 0, code_pages: 0 };

/// Returns the entry of the current process; `None` if its memory cannot be read.
#[inline(always)]
pub fn get(pid: u32) -> Option<Process> {
    // Copied before it is checked: the memory of a replaced entry can become another process's at once
    // (`htab_map_update_elem`, kernel/bpf/hashtab.c).
    // SAFETY: its memory stays that of a value of the map.
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
    // SAFETY: the pointer is a map value's, which are aligned to 8 bytes.
    let generation = (unsafe { atomic::fetch_add(last, 1) } as u32 & GENERATIONS) + 1;
    let mut process = Process { pid, generation, code_pages };
    // If the map is full, each stack has its own generation, and its cached look-ups are not found again.
    if PROCS.insert(&pid, &process, 0).is_err() {
        process.pid = NO_ENTRY.pid;
    }
    Some(process)
}

/// Returns the seed of the ids of the process's stacks: equal addresses under different mappings are different stacks.
///
/// A generation of a single stack is left out, because the frames of every stack would be sent.
#[inline(always)]
pub fn seed(pid: u32, process: &Process) -> u64 {
    let generation = if process.pid == NO_ENTRY.pid { 0 } else { process.generation };
    (pid as u64 + 1) | (generation as u64) << 32
}

/// Removes the entry of a process.
#[inline(always)]
pub fn forget(pid: u32) {
    let _ = PROCS.remove(&pid);
}

/// Copies the parent's entry to a new process.
#[inline(always)]
pub fn copy(parent: u32, child: u32) {
    // SAFETY: its memory stays that of a value of the map.
    if let Some(known) = unsafe { PROCS.get(&parent) } {
        let process = Process { pid: child, ..*known };
        let _ = PROCS.insert(&child, &process, 0);
    }
}
