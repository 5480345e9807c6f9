//! What processes map, unmap and move, by the system calls that do it.
//!
//! What is unmapped or moved is given up before the call, since another thread may be given the same addresses before it
//! returns; where the call fails it is taken back. Calls of 32-bit programs are left out, whose numbers are others.
//!
//! Where programs can be preempted there are three of each ([`redundant`]): else each call that anybody makes while a thread
//! is preempted in the midst of one would count as missed.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use memtrace_common::wire::{PAGE_SHIFT, STACK_NOT_TAKEN};
use memtrace_unwind::mix;

use crate::emit::Range;
use crate::kernel::word;
use crate::redundant::{self, Deed, Turn};
use crate::registers::call::{is_native, number, offset};
use crate::stack::Interrupted;
use crate::thread::Thread;
use crate::{emit, gate, kernel, settings, stack, unwind};

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
    let [turn, ..] = Turn::ENTER;
    turn.begin();
    if is_followed_in(&context) {
        enter(&context);
        if settings::calls_take_turns() {
            entering(&context).note();
        }
    }
    turn.end();
    0
}

#[raw_tracepoint(tracepoint = "sys_enter")]
fn sys_enter_again(context: RawTracePointContext) -> i32 {
    let [_, turn, _] = Turn::ENTER;
    turn.begin();
    if is_followed_in(&context) {
        let deed = entering(&context);
        if !deed.is_noted() {
            enter(&context);
            deed.note();
        }
    }
    turn.end();
    0
}

#[raw_tracepoint(tracepoint = "sys_enter")]
fn sys_enter_still(context: RawTracePointContext) -> i32 {
    let [.., turn] = Turn::ENTER;
    turn.begin();
    if is_followed_in(&context) && !entering(&context).forget() {
        enter(&context);
    }
    turn.end();
    0
}

/// That the call begins which the thread makes.
#[inline(always)]
fn entering(context: &RawTracePointContext) -> Deed {
    Deed::new(redundant::Kind::Enter, call(context))
}

/// That it returns.
#[inline(always)]
fn returning(context: &RawTracePointContext) -> Deed {
    Deed::new(redundant::Kind::Return, mix(call(context), context.arg(1)))
}

/// What tells one call from another: its number, where from, and how much.
#[inline(always)]
fn call(context: &RawTracePointContext) -> u64 {
    let registers: u64 = context.arg(0);
    let of = |offset| word(registers, offset);
    mix(mix(of(offset::NUMBER), of(offset::FIRST)), of(offset::SECOND))
}

/// Whether the call matters that begins.
#[inline(always)]
fn is_followed_in(context: &RawTracePointContext) -> bool {
    let number: u64 = context.arg(1);
    let matters = ends(number) || number == number::BRK && settings::tells_mappings();
    matters && gate::is_open_for_current() && is_native(word(context.arg(0), offset::MODE))
}

#[inline(always)]
fn enter(context: &RawTracePointContext) {
    let registers: u64 = context.arg(0);
    let thread = Thread::current();
    if context.arg::<u64>(1) == number::BRK {
        let memory = word(kernel::task(), settings::areas::task_memory());
        let _ = BREAKS.insert(&thread.tid, &word(memory, settings::memory_break()), 0);
        return;
    }
    let (begin, bytes) = (word(registers, offset::FIRST), pages(word(registers, offset::SECOND)));
    if bytes != 0 {
        emit::park_range(context, thread, begin, bytes);
    }
}

/// `TP_PROTO(struct pt_regs *regs, long ret)`: the registers with the arguments are still as they were.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit(context: RawTracePointContext) -> i32 {
    let [turn, ..] = Turn::EXIT;
    turn.begin();
    if is_followed_out(&context) {
        exit(&context);
        if settings::calls_take_turns() {
            returning(&context).note();
        } else {
            learn(&context);
        }
    }
    turn.end();
    0
}

#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit_again(context: RawTracePointContext) -> i32 {
    let [_, turn, _] = Turn::EXIT;
    turn.begin();
    if is_followed_out(&context) {
        let deed = returning(&context);
        if !deed.is_noted() {
            exit(&context);
            deed.note();
        }
    }
    turn.end();
    0
}

#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit_still(context: RawTracePointContext) -> i32 {
    let [.., turn] = Turn::EXIT;
    turn.begin();
    if is_followed_out(&context) && !returning(&context).forget() {
        exit(&context);
    }
    turn.end();
    0
}

/// Apart from the three, since it takes long. No event is missed where it is not run; some stacks may be cut.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn sys_exit_learn(context: RawTracePointContext) -> i32 {
    if is_followed_out(&context) {
        learn(&context);
    }
    0
}

/// Whether the call matters that returns.
#[inline(always)]
fn is_followed_out(context: &RawTracePointContext) -> bool {
    let registers: u64 = context.arg(0);
    let matters = match word(registers, offset::NUMBER) {
        number::MREMAP => true,
        number::MMAP => settings::tells_mappings() || maps_code(registers),
        number::MUNMAP => true,
        number::BRK => settings::tells_mappings(),
        _ => false,
    };
    matters && gate::is_open_for_current() && is_native(word(registers, offset::MODE))
}

#[inline(always)]
fn exit(context: &RawTracePointContext) {
    let registers: u64 = context.arg(0);
    let result: u64 = context.arg(1);
    let thread = Thread::current();
    let number = word(registers, offset::NUMBER);
    let (begin, bytes) = match number {
        number::MREMAP | number::MUNMAP if result >= ERRORS => {
            if ends(number) && pages(word(registers, offset::SECOND)) != 0 {
                emit::restore_range(context, thread);
            }
            return;
        }
        number::MREMAP => (result, pages(word(registers, offset::THIRD))),
        number::MMAP if result < ERRORS && settings::tells_mappings() => {
            (result, pages(word(registers, offset::SECOND)))
        }
        number::BRK => broken(context, thread, result),
        _ => return,
    };
    // Of no bytes, mremap maps what is shared once more.
    if bytes == 0 || number == number::MREMAP && word(registers, offset::SECOND) == 0 {
        return;
    }
    let ring = emit::ring_for_memory(thread);
    // Pages that are moved stay whose they were. In one place for all others: taking a stack is long to verify.
    let stack = match settings::tells_mappings() {
        true => stack::take(context, &Interrupted { registers }, thread, ring),
        false => STACK_NOT_TAKEN,
    };
    let range = Range { begin, bytes, stack };
    if number == number::MREMAP {
        let old = [word(registers, offset::FIRST), pages(word(registers, offset::SECOND))];
        let keeps = word(registers, offset::FOURTH) & MREMAP_DONTUNMAP != 0;
        emit::moved(context, ring, thread, range, old, keeps);
    } else {
        emit::map(context, ring, thread, range);
    }
}

/// Has the process' code known.
#[inline(always)]
fn learn(context: &RawTracePointContext) {
    let registers: u64 = context.arg(0);
    let result: u64 = context.arg(1);
    match word(registers, offset::NUMBER) {
        number::MMAP if result < ERRORS && maps_code(registers) => {
            unwind::mapped(Thread::current(), result, pages(word(registers, offset::SECOND)));
        }
        number::MUNMAP if result < ERRORS => unwind::settled(Thread::current()),
        _ => {}
    }
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

/// The break is at `now`: what it has gained, from where on and how many bytes.
#[inline(always)]
fn broken(context: &RawTracePointContext, thread: Thread, now: u64) -> (u64, u64) {
    // SAFETY: a word is read as a whole.
    let Some(&before) = (unsafe { BREAKS.get(&thread.tid) }) else { return (0, 0) };
    let _ = BREAKS.remove(&thread.tid);
    let (now, before) = (pages(now), pages(before));
    if now < before {
        emit::park_range(context, thread, now, before - now);
        return (0, 0);
    }
    (before, now - before)
}

/// `bytes`, up to the end of the last page.
#[inline(always)]
fn pages(bytes: u64) -> u64 {
    bytes.wrapping_add((1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT << PAGE_SHIFT
}
