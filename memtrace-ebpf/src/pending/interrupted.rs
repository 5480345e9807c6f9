//! Interrupted calls: allocator calls during which a signal handler runs, or the code of the program that follows a
//! failed allocation.
//!
//! A signal can be delivered inside an allocator call. An allocation in its handler is not nested in that call. So when a
//! handler is about to run, the pending call is moved to a stack of interrupted calls. An interrupted call becomes pending
//! again when it returns, or when it makes a nested call itself. A call is nested in an interrupted call if no signal frame
//! fits between their stack pointers.
//!
//! An `operator new` that fails calls the new handler, or throws an exception. The new handler may free blocks. The
//! exception object is a block that is freed after the exception was caught. So a failed call counts as interrupted
//! too, and later calls are not nested in it. It becomes pending again if it returns. An exception can end it instead.

use core::mem::zeroed;

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;

use super::slot::{Slot, find};
use crate::loss;
use crate::registers::POPPED_BY_RETURN;

/// Maximum number of interrupted calls of one thread.
const DEPTH: usize = 4;

/// Maximum number of threads with interrupted calls.
const THREADS: usize = 4096;

/// Lower bound of the size of a signal frame in bytes. The smallest frame of x86-64 takes 1080 bytes: the red zone,
/// `struct rt_sigframe` and the floating point state (arch/x86/include/asm/sigframe.h).
const SIGNAL_FRAME: u64 = 1024;

/// Value of `distance` in [`resume_interrupted`] for a return: the stack pointers must be equal.
const AT_RETURN: u64 = 1;

/// Value of [`Slot::extra`] for a call that has failed and is pending again.
pub const HAS_FAILED: u64 = 2;

/// Value of [`Interrupted::cause`]: a signal handler on the stack of the thread.
const SIGNAL: u64 = 0;
/// A signal handler that may run on an alternate signal stack, which may be at any address.
const SIGNAL_ON_ALTERNATE_STACK: u64 = 1;
/// The failure of the call.
const FAILURE: u64 = 2;

/// An interrupted call: the fields of a [`Slot`] that belong to a call.
#[derive(Clone, Copy)]
#[repr(C)]
struct Interrupted {
    stack_pointer: u64,
    call: u32,
    allocator: u32,
    size: u64,
    aux: u64,
    extra: u64,
    nested: u64,
    /// Word at `stack_pointer`: the return address, or the address of the uretprobe trampoline.
    return_address: u64,
    /// Cause of the interruption: [`SIGNAL`], [`SIGNAL_ON_ALTERNATE_STACK`] or [`FAILURE`].
    cause: u64,
}

/// Interrupted calls by thread, the latest call last. [`Slot::interrupted`] is the number of calls.
#[btf_map]
static INTERRUPTED: HashMap<u32, [Interrupted; DEPTH], THREADS> = HashMap::new();

/// Moves the thread's pending call to its interrupted calls, because a signal handler is about to run.
/// `alternate_stack` is true if the handler may run on the alternate signal stack.
#[inline(always)]
pub fn interrupt(context: &impl EbpfContext, tid: u32, alternate_stack: bool) {
    move_pending(context, tid, if alternate_stack { SIGNAL_ON_ALTERNATE_STACK } else { SIGNAL });
}

/// Moves the thread's pending call to its interrupted calls, because the call has failed.
#[inline(always)]
pub fn interrupt_failed(context: &impl EbpfContext, tid: u32) {
    move_pending(context, tid, FAILURE);
}

#[inline(always)]
fn move_pending(context: &impl EbpfContext, tid: u32, cause: u64) {
    let lost = interrupt_pending(tid, cause);
    if lost != 0 {
        loss::count(context, LossReason::PendingStale, lost);
    }
}

/// Moves the thread's pending call to its interrupted calls. Returns 0. If the thread has too many interrupted calls or
/// the map is full, drops the call, and returns the number of lost calls. The function is global, because its array
/// takes half of the BPF stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn interrupt_pending(tid: u32, cause: u64) -> u64 {
    let Some(slot) = find(tid) else { return 0 };
    if slot.stack_pointer == 0 {
        return 0;
    }
    let lost = if save(slot, tid, cause) { 0 } else { 1 + slot.nested as u64 };
    slot.stack_pointer = 0;
    lost
}

/// Saves the pending call. Returns false if the thread has too many interrupted calls or the map is full.
#[inline(always)]
fn save(slot: &mut Slot, tid: u32, cause: u64) -> bool {
    let depth = slot.interrupted as usize;
    if depth == 0 {
        // SAFETY: any bits are integers.
        let none: [Interrupted; DEPTH] = unsafe { zeroed() };
        let _ = INTERRUPTED.insert(&tid, &none, 0);
    }
    let Some(calls) = INTERRUPTED.get_ptr_mut(&tid) else { return false };
    // SAFETY: the pointer refers to a map value. Only the thread of the entry uses it.
    let Some(call) = (unsafe { &mut *calls }).get_mut(depth) else { return false };
    call.stack_pointer = slot.stack_pointer;
    call.call = slot.call;
    call.size = slot.size;
    call.aux = slot.aux;
    call.extra = if cause == FAILURE { HAS_FAILED } else { slot.extra };
    call.allocator = slot.allocator;
    call.nested = slot.nested as u64;
    call.return_address = word_at(slot.stack_pointer);
    call.cause = cause;
    slot.interrupted = depth as u32 + 1;
    true
}

/// Forgets the interrupted calls from `depth` on.
#[inline(always)]
fn truncate(slot: &mut Slot, tid: u32, depth: usize) {
    slot.interrupted = depth as u32;
    if depth == 0 {
        let _ = INTERRUPTED.remove(&tid);
    }
}

/// Makes an interrupted call the pending one again if it has called the function that was entered at `stack_pointer`.
#[inline(always)]
pub fn resume_at_entry(slot: &Slot, tid: u32, stack_pointer: u64) {
    if slot.interrupted != 0 {
        resume_interrupted(tid, stack_pointer, SIGNAL_FRAME);
    }
}

/// Makes an interrupted call the pending one again if it returns. `stack_pointer` is the value after the return.
#[inline(always)]
pub fn resume_at_return(slot: &Slot, tid: u32, stack_pointer: u64) {
    if slot.interrupted != 0 {
        resume_interrupted(tid, stack_pointer.wrapping_sub(POPPED_BY_RETURN), AT_RETURN);
    }
}

/// Forgets the interrupted calls of a thread.
#[inline(always)]
pub fn forget(slot: &mut Slot, tid: u32) {
    if slot.interrupted != 0 {
        truncate(slot, tid, 0);
    }
}

/// Returns the word at `stack_pointer`; 0 if it cannot be read.
#[inline(always)]
fn word_at(stack_pointer: u64) -> u64 {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(stack_pointer as *const u64) }.unwrap_or(0)
}

/// Returns true if a failed call has ended without a return. `stack_pointer` is the value at the entry of another function.
/// The failed call has ended if `stack_pointer` is not below its frame, or if its return address has been overwritten.
#[inline(always)]
fn has_ended(call: &Interrupted, stack_pointer: u64) -> bool {
    stack_pointer >= call.stack_pointer || word_at(call.stack_pointer) != call.return_address
}

/// Makes an interrupted call the pending one again if its stack pointer is less than `distance` bytes above
/// `stack_pointer`. At an entry, the function also forgets calls that a longjmp or an exception has left: the stack
/// pointer is above their frames, or their return address has been overwritten. The function is global, so that the
/// verifier does not check it for each probe.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn resume_interrupted(tid: u32, stack_pointer: u64, distance: u64) -> u64 {
    let Some(slot) = find(tid) else { return 0 };
    let Some(calls) = INTERRUPTED.get_ptr_mut(&tid) else { return 0 };
    // SAFETY: the pointer refers to a map value. Only the thread of the entry uses it.
    let calls = unsafe { &*calls };
    for depth in (0..DEPTH).rev() {
        let call = &calls[depth];
        if depth as u32 >= slot.interrupted {
            continue;
        }
        if distance != AT_RETURN && call.cause == FAILURE {
            // If a later interrupted call has not ended, this one has not ended either.
            if depth as u32 + 1 == slot.interrupted && has_ended(call, stack_pointer) {
                truncate(slot, tid, depth);
            }
            continue;
        }
        if distance != AT_RETURN && stack_pointer > call.stack_pointer && call.cause == SIGNAL {
            slot.stack_pointer = 0;
            truncate(slot, tid, depth);
            continue;
        }
        if call.stack_pointer.wrapping_sub(stack_pointer) >= distance {
            continue;
        }
        let is_left = distance != AT_RETURN && word_at(call.stack_pointer) != call.return_address;
        slot.stack_pointer = if is_left { 0 } else { call.stack_pointer };
        slot.call = call.call;
        slot.size = call.size;
        slot.aux = call.aux;
        slot.extra = call.extra;
        slot.allocator = call.allocator;
        slot.nested = call.nested as u32;
        truncate(slot, tid, depth);
        return 1;
    }
    0
}
