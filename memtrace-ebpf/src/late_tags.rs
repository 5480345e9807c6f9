//! Late tags: a program allocates a block first, and then asks for the tag of the block.
//!
//! A wrapper is a function of the program that does both. If a thread allocates a block inside a call of a wrapper, the
//! record of the block waits until the program has asked for the tag, or until the call ends. The block is therefore
//! recorded once, with its final tag. If the program asks for the tag before it allocates, the next block of the call has
//! this tag.
//!
//! Calls of wrappers can be nested. The outermost call counts.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::UNTAGGED;

use crate::emit::{self, Block};
use crate::limits::PENDING_SLOTS;
use crate::thread::Thread;
use crate::{gate, loss, pending, settings};

/// Call of a wrapper. The size is 64 bytes, so that no two threads share a cache line.
#[repr(C, align(64))]
struct WrapperCall {
    /// Stack pointer at the entry of the call; 0 if the thread is in no call.
    stack_pointer: u64,
    /// Address of the block whose record waits; 0 if there is none. The following fields belong to its record.
    address: u64,
    size: u64,
    stack: u64,
    tag: u32,
    /// Id of the tag for the next block of the call; [`UNTAGGED`] if the program has not asked for it.
    next_tag: u32,
}

/// Calls of the threads, by the index of the thread's slot of pending calls.
#[btf_map]
static WRAPPER_CALLS: Array<WrapperCall, PENDING_SLOTS> = Array::new();

/// Flag in the result of [`late_tag_defer`]: the record waits.
const DEFERRED: u64 = 1;

/// Flag in the result of [`late_tag_defer`]: the record of an earlier block was lost, because its ring was full.
const LOST: u64 = 2;

#[inline(always)]
fn of_slot(slot: u32) -> Option<&'static mut WrapperCall> {
    let call = WRAPPER_CALLS.get_ptr_mut(slot)?;
    // SAFETY: the pointer refers to a map value. Only the thread that owns the slot uses it.
    Some(unsafe { &mut *call })
}

#[inline(always)]
fn of_thread(tid: u32) -> Option<&'static mut WrapperCall> {
    pending::slot_of(tid).and_then(of_slot)
}

/// Begins a call of a wrapper that was entered at `stack_pointer`.
#[inline(always)]
pub fn enter(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) {
    let Some(call) = pending::claim_slot(thread.tid).and_then(of_slot) else {
        loss::count(context, LossReason::PendingFull, 1);
        return;
    };
    if stack_pointer < call.stack_pointer {
        // The new call is inside of another one.
        return;
    }
    send_waiting(context, thread.tid);
    call.stack_pointer = stack_pointer;
    call.next_tag = UNTAGGED;
}

/// Ends the call of a wrapper that was entered at `stack_pointer`, unless it is inside of another one.
#[inline(always)]
pub fn leave(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) {
    if let Some(call) = of_thread(thread.tid)
        && stack_pointer >= call.stack_pointer
    {
        end(context, thread.tid, call);
    }
}

/// Returns true if a function that was entered at `stack_pointer` is inside a call of a wrapper.
#[inline(always)]
pub fn is_inside(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) -> bool {
    let Some(call) = of_thread(thread.tid) else { return false };
    if stack_pointer > call.stack_pointer {
        // An exception or a longjmp has ended the call, or there is none.
        end(context, thread.tid, call);
        return false;
    }
    true
}

/// Sets the tag of the block whose record waits, and sends the record; if there is none, sets the tag of the next block.
/// The thread must be inside a call of a wrapper.
#[inline(always)]
pub fn set(context: &impl EbpfContext, thread: Thread, tag: u32) {
    let Some(call) = of_thread(thread.tid) else { return };
    if call.address == 0 {
        call.next_tag = tag;
    } else {
        call.tag = tag;
        send_waiting(context, thread.tid);
    }
}

/// Keeps the record of a block, which a function that was entered at `stack_pointer` has allocated, until the program has
/// asked for its tag. `tag` is the id of the tag without that. Returns false if the thread is in no call of a wrapper: the
/// caller must then send the record.
#[inline(always)]
pub fn defer(context: &impl EbpfContext, tag: u16, block: Block, stack_pointer: u64) -> bool {
    let Block { address, size, stack } = block;
    let result = late_tag_defer(address, size, stack, tag as u32, stack_pointer);
    if result & LOST != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
    result & DEFERRED != 0
}

/// Sends the record of the block at `address` if it waits, because the thread is about to free or to claim the block.
#[inline(always)]
pub fn before_free(context: &impl EbpfContext, thread: Thread, address: u64) {
    if settings::records_late_tags()
        && let Some(call) = of_thread(thread.tid)
        && call.address == address
    {
        send_waiting(context, thread.tid);
    }
}

/// Ends the call of a thread that exits or has called exec. The thread must still own its slot of pending calls.
#[inline(always)]
pub fn forget(context: &impl EbpfContext, tid: u32) {
    if settings::records_late_tags()
        && let Some(call) = of_thread(tid)
    {
        end(context, tid, call);
    }
}

#[inline(always)]
fn end(context: &impl EbpfContext, tid: u32, call: &mut WrapperCall) {
    send_waiting(context, tid);
    call.stack_pointer = 0;
}

#[inline(always)]
fn send_waiting(context: &impl EbpfContext, tid: u32) {
    if late_tag_send(tid) != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

/// Sends the record that waits in the call. Returns false if the ring is full. While the gate is closed, nothing is
/// recorded.
#[inline(always)]
fn send(call: &mut WrapperCall, thread: Thread) -> bool {
    let block = Block { address: call.address, size: call.size, stack: call.stack };
    call.address = 0;
    block.address == 0 || !gate::is_open() || emit::late_alloc(thread, call.tag as u16, block)
}

/// Sends the record of the thread `tid` of the current process that waits, if there is one. Returns the number of lost
/// records. The function is global, so that the verifier does not check it for each probe.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn late_tag_send(tid: u32) -> u64 {
    let Some(call) = of_thread(tid) else { return 0 };
    if send(call, Thread { tid, ..Thread::current() }) { 0 } else { 1 }
}

/// Keeps the record of a block in the call of the current thread. Returns [`DEFERRED`] if there is a call, and [`LOST`]. The
/// function is global, because the programs at returns have little stack left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn late_tag_defer(address: u64, size: u64, stack: u64, tag: u32, stack_pointer: u64) -> u64 {
    let thread = Thread::current();
    let Some(call) = of_thread(thread.tid) else { return 0 };
    if call.stack_pointer == 0 {
        return 0;
    }
    let lost = if send(call, thread) { 0 } else { LOST };
    if stack_pointer > call.stack_pointer {
        // An exception or a longjmp has ended the call.
        call.stack_pointer = 0;
        return lost;
    }
    call.address = address;
    call.size = size;
    call.stack = stack;
    call.tag = if call.next_tag == UNTAGGED { tag } else { call.next_tag };
    call.next_tag = UNTAGGED;
    lost | DEFERRED
}
