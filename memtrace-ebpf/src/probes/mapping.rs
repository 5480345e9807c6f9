//! Changes of mappings: mmap, munmap, mremap and brk.
//!
//! A range is tentatively unmapped at the entry of the system call, because another thread may get the same addresses
//! before the call returns. If the call fails, the unmap is undone. System calls of 32-bit executables have other
//! numbers and are ignored.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::{PAGE_SHIFT, STACK_NOT_TAKEN};
use memtrace_unwind::mix;

use crate::emit::Range;
use crate::kernel::{current_task, read_word};
use crate::origin::Interrupted;
use crate::redundant::{self, Event, Occurrence, Slot};
use crate::registers::call::{is_native, number, offset};
use crate::settings::field;
use crate::thread::Thread;
use crate::{emit, gate, settings, stack, unwind};

/// Lowest result that is an error (`MAX_ERRNO`, include/linux/err.h).
const ERRORS: u64 = -4095_i64 as u64;

/// Flag of mremap: the old mapping stays, without its pages (include/uapi/linux/mman.h).
const MREMAP_DONTUNMAP: u64 = 4;

/// Bit of the protection of a mapping (include/uapi/asm-generic/mman-common.h).
const PROT_EXEC: u64 = 4;
/// Flag of mmap (include/uapi/asm-generic/mman-common.h).
const MAP_ANONYMOUS: u64 = 0x20;

/// Program break before a pending brk call, by thread.
#[btf_map]
static BREAKS: LruHashMap<u32, u64, 8192> = LruHashMap::new();

redundant::programs!(SyscallEnter at "sys_enter": sys_enter sys_enter_2 sys_enter_3);
redundant::programs!(SyscallExit at "sys_exit": sys_exit sys_exit_2 sys_exit_3);

/// `TP_PROTO(struct pt_regs *regs, long id)`, include/trace/events/syscalls.h.
struct SyscallEnter;

impl Event for SyscallEnter {
    const SLOTS: Option<[Slot; 3]> = Some(Slot::ENTER);

    #[inline(always)]
    fn is_relevant(context: &RawTracePointContext) -> bool {
        let number: u64 = context.arg(1);
        let is_relevant = unmaps(number) || number == number::BRK && settings::records_mappings();
        is_relevant && gate::recorded(Thread::current()).frees() && is_native(read_word(context.arg(0), offset::MODE))
    }

    #[inline(always)]
    fn occurrence(context: &RawTracePointContext) -> Occurrence {
        Occurrence::new(redundant::Kind::SyscallEnter, call_hash(context))
    }

    #[inline(always)]
    fn handle(context: &RawTracePointContext) {
        let registers: u64 = context.arg(0);
        let thread = Thread::current();
        if context.arg::<u64>(1) == number::BRK {
            let mm = read_word(current_task(), field!(vma.task_mm));
            let _ = BREAKS.insert(&thread.tid, &read_word(mm, field!(task.mm_brk)), 0);
            return;
        }
        let (begin, bytes) = (read_word(registers, offset::FIRST), page_align(read_word(registers, offset::SECOND)));
        if bytes != 0 {
            emit::tentative_unmap(context, thread, begin, bytes);
        }
    }
}

/// `TP_PROTO(struct pt_regs *regs, long ret)`, include/trace/events/syscalls.h. The registers still hold the
/// arguments.
struct SyscallExit;

impl Event for SyscallExit {
    const SLOTS: Option<[Slot; 3]> = Some(Slot::EXIT);

    #[inline(always)]
    fn is_relevant(context: &RawTracePointContext) -> bool {
        let registers: u64 = context.arg(0);
        let is_relevant = match read_word(registers, offset::NUMBER) {
            number::MREMAP => true,
            number::MMAP => settings::records_mappings() || maps_code(registers),
            number::MUNMAP => true,
            number::BRK => settings::records_mappings(),
            _ => false,
        };
        is_relevant && gate::recorded(Thread::current()).frees() && is_native(read_word(registers, offset::MODE))
    }

    #[inline(always)]
    fn occurrence(context: &RawTracePointContext) -> Occurrence {
        Occurrence::new(redundant::Kind::SyscallExit, mix(call_hash(context), context.arg(1)))
    }

    #[inline(always)]
    fn handle(context: &RawTracePointContext) {
        record_result(context);
    }

    #[inline(always)]
    fn handle_alone(context: &RawTracePointContext) {
        prefetch_vmas(context);
    }
}

/// Prefetches VMAs in a program of its own, because a prefetch takes long. If the kernel skips this program, no event
/// is missed, but some stacks may be cut.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit_prefetch(context: RawTracePointContext) -> i32 {
    if SyscallExit::is_relevant(&context) {
        prefetch_vmas(&context);
    }
    0
}

/// Returns a hash of the call's number and first two arguments.
#[inline(always)]
fn call_hash(context: &RawTracePointContext) -> u64 {
    let registers: u64 = context.arg(0);
    let register = |offset| read_word(registers, offset);
    mix(mix(register(offset::NUMBER), register(offset::FIRST)), register(offset::SECOND))
}

#[inline(always)]
fn record_result(context: &RawTracePointContext) {
    let registers: u64 = context.arg(0);
    let result: u64 = context.arg(1);
    let thread = Thread::current();
    let number = read_word(registers, offset::NUMBER);
    let (begin, bytes) = match number {
        number::MREMAP | number::MUNMAP if result >= ERRORS => {
            if unmaps(number) && page_align(read_word(registers, offset::SECOND)) != 0 {
                emit::undo_unmap(context, thread);
            }
            return;
        }
        number::MREMAP => (result, page_align(read_word(registers, offset::THIRD))),
        number::MMAP if result < ERRORS && settings::records_mappings() => {
            (result, page_align(read_word(registers, offset::SECOND)))
        }
        number::BRK => growth_of_break(context, thread, result),
        _ => return,
    };
    // With an old size of 0, mremap maps a shared mapping a second time.
    if bytes == 0 || number == number::MREMAP && read_word(registers, offset::SECOND) == 0 {
        return;
    }
    // If the process is no longer traced, a moved range counts as unmapped.
    if !gate::recorded(Thread::current()).allocations() {
        return;
    }
    let ring = emit::ring_for_memory(thread);
    // If only moves are recorded, no stack is needed: moved pages keep their stacks. All cases share one call of
    // `stack::take`, because the verifier takes long for it.
    let stack = match settings::records_mappings() {
        true => stack::take(context, &Interrupted { registers }, thread, ring),
        false => STACK_NOT_TAKEN,
    };
    let range = Range { begin, bytes, stack };
    if number == number::MREMAP {
        let old = [read_word(registers, offset::FIRST), page_align(read_word(registers, offset::SECOND))];
        let keeps = read_word(registers, offset::FOURTH) & MREMAP_DONTUNMAP != 0;
        emit::remap(context, ring, thread, range, old, keeps);
    } else {
        emit::map(context, ring, thread, range);
    }
}

/// After an mmap, adds the new executable VMA. After a munmap, prefetches all executable VMAs.
#[inline(always)]
fn prefetch_vmas(context: &RawTracePointContext) {
    let registers: u64 = context.arg(0);
    let result: u64 = context.arg(1);
    match read_word(registers, offset::NUMBER) {
        number::MMAP if result < ERRORS && maps_code(registers) => {
            unwind::add_exec_vma(Thread::current(), result, page_align(read_word(registers, offset::SECOND)));
        }
        number::MUNMAP if result < ERRORS => unwind::prefetch(Thread::current()),
        _ => {}
    }
}

/// Returns true if the call with this number may remove a recorded mapping.
#[inline(always)]
fn unmaps(number: u64) -> bool {
    number == number::MREMAP || number == number::MUNMAP && settings::records_mappings()
}

/// Returns true if the mmap call with these registers maps a file as executable.
#[inline(always)]
fn maps_code(registers: u64) -> bool {
    read_word(registers, offset::THIRD) & PROT_EXEC != 0 && read_word(registers, offset::FOURTH) & MAP_ANONYMOUS == 0
}

/// Returns the range (address, bytes) that the brk call has added; `now` is the new break. If the break has shrunk, records the
/// removed range and returns an empty one.
#[inline(always)]
fn growth_of_break(context: &RawTracePointContext, thread: Thread, now: u64) -> (u64, u64) {
    // SAFETY: the value is one word, which is read as a whole.
    let Some(&before) = (unsafe { BREAKS.get(&thread.tid) }) else { return (0, 0) };
    let _ = BREAKS.remove(&thread.tid);
    let (now, before) = (page_align(now), page_align(before));
    if now < before {
        emit::tentative_unmap(context, thread, now, before - now);
        return (0, 0);
    }
    (before, now - before)
}

#[inline(always)]
fn page_align(bytes: u64) -> u64 {
    bytes.wrapping_add((1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT << PAGE_SHIFT
}
