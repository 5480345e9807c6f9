//! Where a process has mapped code, so that the kernel is asked about all of it when some is added.
//!
//! At a page fault the kernel can be asked about one mapping only, since interrupts are off there and it gives the lock back by
//! an interrupt (`bpf_mmap_unlock_get_irq_work`, kernel/bpf/mmap_unlock_work.h). What it said is forgotten with each mapping of
//! code, so that of a process that has only just begun, or of whose pages few are in a sample, most stacks would be cut. When a
//! system call returns it can be asked as often as one likes. The moment is when something is unmapped: so does the linker its
//! list of libraries when it has mapped them all (`_dl_unload_cache`, elf/dl-cache.c).

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;

use super::{processes, vma};
use crate::registers::call::offset;
use crate::stack::{self, Interrupted, Scratch};
use crate::thread::Thread;
use crate::{gate, kernel, settings};

/// So many mappings of a process are kept: most programs have no more, and who has learns the others at its faults.
const MOST: u32 = 12;

/// One of a process' mappings of code, numbered as they were made.
#[repr(C)]
struct Which {
    pid: u32,
    number: u32,
}

/// Addresses.
#[derive(Clone, Copy)]
#[repr(C)]
struct Range {
    begin: u64,
    end: u64,
}

#[btf_map]
static CODE: LruHashMap<Which, Range, 16384> = LruHashMap::new();

/// Whether it is of use: somebody asks about it, and may.
#[inline(always)]
fn is_kept() -> bool {
    settings::follows_calls() && settings::can_find_areas() && settings::max_depth() != 0
}

/// The current thread has mapped code of a file at `begin`, so many bytes.
#[inline(always)]
pub fn mapped(thread: Thread, begin: u64, bytes: u64) {
    if !is_kept() {
        return;
    }
    let range = Range { begin, end: begin.wrapping_add(bytes) };
    for number in 0..MOST {
        // What cannot be kept is asked for when it is met.
        if CODE.insert(&Which { pid: thread.pid, number }, &range, gate::IF_NEW).is_ok() {
            break;
        }
    }
}

/// The current thread has unmapped something: if the process has mapped code before, it may well have all by now.
#[inline(always)]
pub fn settled(thread: Thread) {
    if !is_kept() {
        return;
    }
    let Some(pages) = vma::code_pages() else { return };
    let learned = Which { pid: thread.pid, number: LEARNED };
    let now = Range { begin: pages as u64, end: 0 };
    // SAFETY: only a word of it is read.
    if unsafe { CODE.get(&learned) }.is_none_or(|before| before.begin != now.begin) {
        let _ = CODE.insert(&learned, &now, 0);
        let slot = stack::claim(thread);
        if slot != stack::NO_SLOT {
            unwind_learn(slot, thread.pid);
            stack::release(slot);
        }
    }
}

/// In the place of a mapping's number: how much code there was when it was learned last.
const LEARNED: u32 = u32::MAX;

/// Where the current process runs on when it leaves the kernel; 0 where that cannot be read.
#[inline(always)]
pub fn next_instruction() -> u64 {
    kernel::word(Interrupted::current().registers, offset::INSTRUCTION)
}

/// The process has another program now, or has ended.
#[inline(always)]
pub fn forget(pid: u32) {
    if !is_kept() {
        return;
    }
    let _ = CODE.remove(&Which { pid, number: LEARNED });
    for number in 0..MOST {
        if CODE.remove(&Which { pid, number }).is_err() {
            break;
        }
    }
}

/// Asks about all code of the current process, in the scratch memory of `slot`. Is verified by itself, as the step is.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_learn(slot: u32, pid: u32) -> u64 {
    let Some(scratch) = Scratch::at(slot) else { return 0 };
    let Some(process) = processes::of(pid) else { return 0 };
    scratch.unwind.process = process;
    scratch.unwind.pid = pid;
    if let Some((begin, end)) = vma::program_code() {
        ask(slot, begin, end);
    }
    for number in 0..MOST {
        // SAFETY: whatever is read, the kernel says what is there.
        let Some(&Range { begin, end }) = (unsafe { CODE.get(Which { pid, number }) }) else { break };
        ask(slot, begin, end);
    }
    0
}

/// Several times, since it is kept for the neighbourhood of what is asked for.
#[inline(always)]
fn ask(slot: u32, begin: u64, end: u64) {
    let step = (end.wrapping_sub(begin) / TIMES).max(NEIGHBOURHOOD);
    let mut next = begin;
    for _ in 0..=TIMES {
        if next >= end {
            break;
        }
        vma::unwind_find_mapping(slot, next);
        next = next.wrapping_add(step) / NEIGHBOURHOOD * NEIGHBOURHOOD;
    }
}

/// How often at most, about one mapping.
const TIMES: u64 = 4;

/// The middle one of those that `areas` remembers mappings for.
const NEIGHBOURHOOD: u64 = 1 << 20;
