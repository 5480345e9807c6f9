//! Executable VMAs of a process, which are looked up ahead of page faults.
//!
//! At a page fault `bpf_find_vma` can look up one VMA only: interrupts are off, and the helper releases the mmap lock in an
//! interrupt (`bpf_mmap_unlock_get_irq_work`, kernel/bpf/mmap_unlock_work.h). Each new executable mapping invalidates the cached
//! look-ups. Without a prefetch, most stacks of a process would be cut on kernels before Linux 6.1 if the process has just
//! started or few of its pages are sampled. On newer kernels, a slower search without the lock is possible. When a system call
//! returns, any number of VMAs can be looked up. The prefetch follows a munmap, because the dynamic linker unmaps its cache file
//! once it has mapped all libraries (`_dl_unload_cache`, elf/dl-cache.c).

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;

use super::{processes, vma};
use crate::limits::BPF_NOEXIST;
use crate::origin::Interrupted;
use crate::registers::call::offset;
use crate::scratch::{NO_SLOT, Scratch, claim, release};
use crate::thread::Thread;
use crate::{kernel, settings};

/// Maximum number of VMAs kept for a process. Most processes have fewer. Further VMAs are looked up at page faults.
const MAX_VMAS: u32 = 12;

/// Key of an executable VMA: the process, and the index of the VMA in the order of the mmap calls.
#[repr(C)]
struct Key {
    pid: u32,
    number: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Range {
    begin: u64,
    end: u64,
}

#[btf_map]
static EXEC_VMAS: LruHashMap<Key, Range, 16384> = LruHashMap::new();

/// Key number of the entry about the last prefetch. The `begin` of this entry is the number of executable pages at that
/// time.
const PREFETCHED: u32 = u32::MAX;

/// Maximum number of look-ups inside a VMA, in addition to the look-up of its start.
const LOOKUPS: u64 = 4;

/// Minimum distance of look-ups in bytes: the middle size of the address ranges in the cache of `vma`.
const DISTANCE: u64 = 1 << 20;

#[inline(always)]
fn is_enabled() -> bool {
    settings::follows_syscalls() && settings::max_depth() != 0
}

/// Adds an executable VMA of the current process: `bytes` from `begin` on.
#[inline(always)]
pub fn add(thread: Thread, begin: u64, bytes: u64) {
    if !is_enabled() {
        return;
    }
    let range = Range { begin, end: begin.wrapping_add(bytes) };
    for number in 0..MAX_VMAS {
        // If no number is free, the VMA is looked up when a stack reaches it.
        if EXEC_VMAS.insert(&Key { pid: thread.pid, number }, &range, BPF_NOEXIST).is_ok() {
            break;
        }
    }
}

/// Looks up the executable VMAs of the current process if their total size has changed since the last prefetch.
#[inline(always)]
pub fn prefetch(thread: Thread) {
    if !is_enabled() {
        return;
    }
    let Some(pages) = vma::exec_pages() else { return };
    let prefetched = Key { pid: thread.pid, number: PREFETCHED };
    let now = Range { begin: pages as u64, end: 0 };
    // SAFETY: only one word of the value is read.
    if unsafe { EXEC_VMAS.get(&prefetched) }.is_none_or(|before| before.begin != now.begin) {
        let _ = EXEC_VMAS.insert(&prefetched, &now, 0);
        let slot = claim(thread);
        if slot != NO_SLOT {
            unwind_prefetch(slot, thread.pid);
            release(slot);
        }
    }
}

/// Returns the address of the current process's next instruction in user mode; 0 if it cannot be read.
#[inline(always)]
pub fn next_instruction() -> u64 {
    kernel::read_word(Interrupted::current().registers, offset::INSTRUCTION)
}

#[inline(always)]
pub fn forget(pid: u32) {
    if !is_enabled() {
        return;
    }
    let _ = EXEC_VMAS.remove(&Key { pid, number: PREFETCHED });
    for number in 0..MAX_VMAS {
        if EXEC_VMAS.remove(&Key { pid, number }).is_err() {
            break;
        }
    }
}

/// Looks up all known VMAs of the current process, with the scratch memory of `slot`. The function is global, like
/// [`super::unwind_step`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_prefetch(slot: u32, pid: u32) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return 0 };
    let Some(process) = processes::get(pid) else { return 0 };
    scratch.walk.process = process;
    scratch.walk.pid = pid;
    if let Some((begin, end)) = vma::executable_range() {
        look_up(slot, begin, end);
    }
    for number in 0..MAX_VMAS {
        // SAFETY: a range that changes during the read is harmless, because the kernel looks up the mapping.
        let Some(&Range { begin, end }) = (unsafe { EXEC_VMAS.get(Key { pid, number }) }) else { break };
        look_up(slot, begin, end);
    }
    0
}

/// Looks up a VMA at several addresses, because each entry of the cache is for a range of [`DISTANCE`] bytes.
#[inline(always)]
fn look_up(slot: u32, begin: u64, end: u64) {
    let step = (end.wrapping_sub(begin) / LOOKUPS).max(DISTANCE);
    let mut next = begin;
    for _ in 0..=LOOKUPS {
        if next >= end {
            break;
        }
        vma::unwind_find_mapping(slot, next);
        next = next.wrapping_add(step) / DISTANCE * DISTANCE;
    }
}
