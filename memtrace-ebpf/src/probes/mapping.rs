//! What processes map, unmap and move, by the system calls that do it.
//!
//! What is unmapped or moved is given up before the call, since another thread may be given the same addresses before it
//! returns; where the call fails it is taken back. Calls of 32-bit programs are left out, whose numbers are others.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_get_current_task;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::PAGE_SHIFT;

use crate::emit::Range;
use crate::registers::call::{is_native, number, offset};
use crate::stack::Interrupted;
use crate::thread::Thread;
use crate::{emit, maps, settings, stack, unwind};

/// Results from here on are errors (`MAX_ERRNO`, include/linux/err.h).
const ERRORS: u64 = -4095_i64 as u64;

/// The old mapping stays where it is, without its pages (include/uapi/linux/mman.h).
const MREMAP_DONTUNMAP: u64 = 4;

/// include/uapi/asm-generic/mman-common.h
const PROT_EXEC: u64 = 4;
const MAP_ANONYMOUS: u64 = 0x20;

/// What the break was before a call that may change it, by thread.
#[btf_map]
static BREAKS: LruHashMap<u32, u64, 8192> = LruHashMap::new();

/// `TP_PROTO(struct pt_regs *regs, long id)`, include/trace/events/syscalls.h.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn sys_enter(context: RawTracePointContext) -> i32 {
    let number: u64 = context.arg(1);
    let ends = ends(number);
    if !ends && !(number == number::BRK && settings::tells_mappings()) {
        return 0;
    }
    let registers: u64 = context.arg(0);
    if !maps::gate_open() || !is_native(word(registers, offset::MODE)) {
        return 0;
    }
    let thread = Thread::current();
    if ends {
        let (begin, bytes) = (word(registers, offset::FIRST), pages(word(registers, offset::SECOND)));
        if bytes != 0 {
            emit::park_range(&context, thread, begin, bytes);
        }
    } else {
        // SAFETY: the helper takes nothing.
        let memory = word(unsafe { bpf_get_current_task() }, settings::areas::task_memory() as usize);
        let _ = BREAKS.insert(&thread.tid, &word(memory, settings::memory_break()), 0);
    }
    0
}

/// `TP_PROTO(struct pt_regs *regs, long ret)`: the registers with the arguments are still as they were.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit(context: RawTracePointContext) -> i32 {
    let registers: u64 = context.arg(0);
    let number = word(registers, offset::NUMBER);
    let matters = match number {
        number::MREMAP => true,
        number::MMAP => settings::tells_mappings() || maps_code(registers),
        number::MUNMAP => true,
        number::BRK => settings::tells_mappings(),
        _ => false,
    };
    if !matters || !maps::gate_open() || !is_native(word(registers, offset::MODE)) {
        return 0;
    }
    let result: u64 = context.arg(1);
    let thread = Thread::current();
    match number {
        number::MREMAP | number::MUNMAP if result >= ERRORS => {
            if ends(number) && pages(word(registers, offset::SECOND)) != 0 {
                emit::restore_range(&context, thread);
            }
        }
        number::MUNMAP => unwind::settled(thread),
        number::MREMAP => moved(&context, registers, thread, result),
        number::MMAP if result < ERRORS => {
            let bytes = pages(word(registers, offset::SECOND));
            if maps_code(registers) {
                unwind::mapped(thread, result, bytes);
            }
            if settings::tells_mappings() {
                mapped(&context, registers, thread, result, bytes);
            }
        }
        number::BRK => broken(&context, registers, thread, result),
        _ => {}
    }
    0
}

/// Whether the call with this number may take a mapping away that is in the books.
#[inline(always)]
fn ends(number: u64) -> bool {
    number == number::MREMAP || number == number::MUNMAP && settings::tells_mappings()
}

/// Whether a call of mmap is about a file's code.
#[inline(always)]
fn maps_code(registers: u64) -> bool {
    word(registers, offset::THIRD) & PROT_EXEC != 0 && word(registers, offset::FOURTH) & MAP_ANONYMOUS == 0
}

#[inline(always)]
fn moved(context: &RawTracePointContext, registers: u64, thread: Thread, begin: u64) {
    let old = [word(registers, offset::FIRST), pages(word(registers, offset::SECOND))];
    // Of no bytes, it maps what is shared once more.
    if old[1] == 0 {
        return;
    }
    let bytes = pages(word(registers, offset::THIRD));
    let keeps = word(registers, offset::FOURTH) & MREMAP_DONTUNMAP != 0;
    let ring = emit::ring_for_memory(thread);
    let stack = stack::take(context, &Interrupted { registers }, thread, ring);
    emit::moved(context, ring, thread, Range { begin, bytes, stack }, old, keeps);
}

/// The break is at `now`.
#[inline(always)]
fn broken(context: &RawTracePointContext, registers: u64, thread: Thread, now: u64) {
    // SAFETY: a word is read as a whole.
    let Some(&before) = (unsafe { BREAKS.get(&thread.tid) }) else { return };
    let _ = BREAKS.remove(&thread.tid);
    let (now, before) = (pages(now), pages(before));
    if now > before {
        mapped(context, registers, thread, before, now - before);
    } else if now < before {
        emit::park_range(context, thread, now, before - now);
    }
}

#[inline(always)]
fn mapped(context: &RawTracePointContext, registers: u64, thread: Thread, begin: u64, bytes: u64) {
    let ring = emit::ring_for_memory(thread);
    let stack = stack::take(context, &Interrupted { registers }, thread, ring);
    emit::map(context, ring, thread, Range { begin, bytes, stack });
}

/// `bytes`, up to the end of the last page.
#[inline(always)]
fn pages(bytes: u64) -> u64 {
    bytes.wrapping_add((1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT << PAGE_SHIFT
}

/// The word at `offset` of `base`, in the kernel's memory; 0 where it cannot be read.
#[inline(always)]
fn word(base: u64, offset: usize) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base as usize + offset) as *const u64) }.unwrap_or(0)
}
