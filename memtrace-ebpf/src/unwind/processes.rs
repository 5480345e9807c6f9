//! Whose mappings are which: a generation for each process, a new one whenever its mappings change. Stacks of one generation
//! are not those of another.
//!
//! Where the kernel can be asked for mappings (Linux 5.17), the programs keep these entries by themselves. That a generation
//! is over they see by the number of the process' pages of code, which is another one as soon as a library is unmapped; and
//! before another comes to its place, the linker allocates, and so a stack is taken. Besides, user space has entries
//! forgotten when it hears of a mapping, for those who exchange code without allocating. On older kernels user space tells
//! of each process' mappings.

use core::ptr::read_volatile;

use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{MAX_PROCESSES, Process};

use super::{exec_vmas, vma};
use crate::{atomic, settings};

#[btf_map]
static PROCS: HashMap<u32, Process, MAX_PROCESSES> = HashMap::new();

/// The generation that was given out last.
#[btf_map]
static GENERATION: Array<u64, 1> = Array::new();

/// Generations that user space gives have the bit above these (`memtrace::kernel`), so that nobody gives out another's.
const GIVEN_HERE: u32 = (1 << 31) - 1;

/// Stands for no entry: it has no generation, and is nobody's, since process 0 is the idle one.
///
/// An `Option` would leave the compiler free to save what is not there, which the verifier refuses.
const NOTHING: Process = Process { base: 0, count: 0, generation: 0, code_pages: 0 };

/// What is known of the current process' mappings; `None` where nothing is and the kernel cannot be asked.
#[inline(always)]
pub fn of(pid: u32) -> Option<Process> {
    // Copied before it is judged: the memory of an entry that is replaced may be another process' at once
    // (`htab_map_update_elem`, kernel/bpf/hashtab.c).
    // SAFETY: its memory stays that of a value of the map.
    let known = match unsafe { PROCS.get(&pid) } {
        // SAFETY: as above.
        Some(known) => unsafe { read_volatile(known) },
        None => NOTHING,
    };
    if !settings::can_find_areas() {
        return if known.generation == 0 { None } else { Some(known) };
    }
    let code_pages = vma::code_pages()?;
    if known.count != 0 || known.base == pid && known.code_pages == code_pages {
        return Some(known);
    }
    let last = GENERATION.get_ptr_mut(0)?;
    // SAFETY: the pointer is a map value's, which are aligned to 8 bytes.
    let generation = (unsafe { atomic::fetch_add(last, 1) } as u32 & GIVEN_HERE) + 1;
    let mut process = Process { base: pid, count: 0, generation, code_pages };
    // Where there is no room, each stack has a generation of its own, and remembers for nobody.
    if PROCS.insert(&pid, &process, 0).is_err() {
        process.base = NOTHING.base;
    }
    Some(process)
}

/// What the ids of stacks that are taken now begin with: the same addresses under other mappings are another stack.
///
/// A generation that is one stack's alone is left out, since that stack's frames would be sent each time.
#[inline(always)]
pub fn seed(pid: u32, process: &Process) -> u64 {
    let kept = process.count != 0 || process.base != NOTHING.base;
    let generation = if kept { process.generation } else { 0 };
    unmapped_seed(pid) | (generation as u64) << 32
}

/// What the ids of stacks begin with where nothing is known of the process' mappings.
#[inline(always)]
pub fn unmapped_seed(pid: u32) -> u64 {
    pid as u64 + 1
}

/// Forgets what is known of the process' mappings, because it has others now, or has ended.
#[inline(always)]
pub fn forget(pid: u32) {
    // There need not be anything.
    let _ = PROCS.remove(&pid);
    exec_vmas::forget(pid);
}

/// A new process begins with its parent's mappings, and with what is known of them.
#[inline(always)]
pub fn copy(parent: u32, child: u32) {
    // SAFETY: its memory stays that of a value of the map.
    if let Some(known) = unsafe { PROCS.get(&parent) } {
        let mut process = *known;
        // Where the kernel is asked, an entry's base is whose it is.
        if process.count == 0 {
            process.base = child;
        }
        let _ = PROCS.insert(&child, &process, 0);
    }
}
