//! Late tags: a program allocates a block first, and then asks for the tag of the block.
//!
//! A wrapper is a function of the program that allocates a block and asks for its tag. If a thread allocates a block
//! inside a call of a wrapper, the record of the block waits until the program has asked for the tag, or until the call
//! ends. The block is therefore recorded once, with its final tag. If the program asks for the tag before it allocates,
//! the next block of the call has this tag.
//!
//! A thread that frees a block of another thread sends the record of the block first, if the record waits. The thread that
//! removes a record from the map of waiting records sends it, so each record is sent once.
//!
//! Calls of wrappers can be nested. The outermost call counts.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::UNTAGGED;

use crate::emit::{self, Block};
use crate::limits::PENDING_SLOTS;
use crate::thread::Thread;
use crate::{address_space, gate, loss, pending, settings};

/// Maximum number of records that wait: at most one for each thread in a call of a wrapper.
const MAX_WAITING: usize = 1 << 14;

/// Call of a wrapper. The size is 64 bytes, so that no two threads share a cache line.
#[repr(C, align(64))]
struct WrapperCall {
    /// Stack pointer at the entry of the call; 0 if the thread is in no call.
    stack_pointer: u64,
    /// Address of the last block of the call, if its record waits and the thread has not freed the block; else 0.
    address: u64,
    /// Id of the tag for the next block of the call; [`UNTAGGED`] if the program has not asked for it.
    next_tag: u32,
}

/// Calls of the threads, by the index of the thread's slot of pending calls.
#[btf_map]
static WRAPPER_CALLS: Array<WrapperCall, PENDING_SLOTS> = Array::new();

/// Block with a record that waits.
#[derive(Clone, Copy)]
#[repr(C)]
struct WaitingBlock {
    /// Main process of the address space.
    pid: u64,
    address: u64,
}

/// Record that waits, without the address of its block.
#[derive(Clone, Copy)]
#[repr(C)]
struct WaitingRecord {
    size: u64,
    stack: u64,
    /// Process of the thread that has allocated the block.
    pid: u32,
    tid: u32,
    /// Id of the tag that the block gets if the program does not ask for a tag.
    tag: u64,
}

/// Records that wait.
#[btf_map]
static WAITING_RECORDS: HashMap<WaitingBlock, WaitingRecord, MAX_WAITING> = HashMap::new();

/// Argument of [`late_tag_send`]: the block keeps the tag of its record.
const SAME_TAG: u32 = u32::MAX;

/// Mask of the id of the tag in the result of [`late_tag_defer`].
const TAG: u64 = u16::MAX as u64;

/// Flag in the result of [`late_tag_defer`]: the record waits.
const DEFERRED: u64 = 1 << 16;

/// Flag in the result of [`late_tag_defer`]: the record of an earlier block was lost, because its ring was full.
const LOST: u64 = 1 << 17;

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
        // An exception or a longjmp has ended the call, or the thread is in no call.
        end(context, thread.tid, call);
        return false;
    }
    true
}

/// Sets the tag of the block whose record waits, and sends the record. If no record waits, sets the tag of the next
/// block. The thread must be inside a call of a wrapper.
#[inline(always)]
pub fn set(context: &impl EbpfContext, thread: Thread, tag: u32) {
    let Some(call) = of_thread(thread.tid) else { return };
    if call.address == 0 {
        call.next_tag = tag;
    } else if late_tag_send(thread.tid, tag) != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

/// Keeps the record of a block until the program has asked for the tag of the block. The function that has allocated the
/// block was entered at `stack_pointer`. The block gets `tag` if the program does not ask. Returns `None` if the record
/// waits. Otherwise the caller must send the record with the returned tag.
#[inline(always)]
pub fn defer(context: &impl EbpfContext, tag: u16, block: Block, stack_pointer: u64) -> Option<u16> {
    let Block { address, size, stack } = block;
    let result = late_tag_defer(address, size, stack, tag as u32, stack_pointer);
    if result & LOST != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
    if result & DEFERRED == 0 { Some((result & TAG) as u16) } else { None }
}

/// Sends the record of the block at `address` if it waits, because the thread is about to free or to claim the block. Any
/// thread may have allocated the block.
#[inline(always)]
pub fn before_free(context: &impl EbpfContext, thread: Thread, address: u64) {
    if settings::records_late_tags() && late_tag_before_free(thread.pid, thread.tid, address) != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
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
    if late_tag_send(tid, SAME_TAG) != 0 {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

#[inline(always)]
fn waiting_block(pid: u32, address: u64) -> WaitingBlock {
    WaitingBlock { pid: address_space::main_process(pid) as u64, address }
}

/// Removes and returns the waiting record of `block`. Returns `None` if there is no such record, or if another thread has
/// removed it first. If `owner` is given, only a record of this thread is removed.
#[inline(always)]
fn take(block: WaitingBlock, owner: Option<u32>) -> Option<WaitingRecord> {
    // SAFETY: the kernel may reuse the memory for another record during the copy. In this case, the record was removed
    // before, and the removal below fails.
    let record = unsafe { WAITING_RECORDS.get(&block) }.copied()?;
    if owner.is_some_and(|tid| tid != record.tid) {
        return None;
    }
    WAITING_RECORDS.remove(&block).is_ok().then_some(record)
}

/// Sends a record that has waited. Returns false if the ring is full. While the gate is closed, nothing is recorded.
#[inline(always)]
fn send(address: u64, record: WaitingRecord, tag: u32) -> bool {
    let WaitingRecord { size, stack, pid, tid, .. } = record;
    let tag = if tag == SAME_TAG { record.tag as u16 } else { tag as u16 };
    !gate::is_open() || emit::late_alloc(Thread { pid, tid }, tag, Block { address, size, stack })
}

/// Sends the record that waits in the call of `thread`. Returns false if the ring is full.
#[inline(always)]
fn send_of_call(call: &mut WrapperCall, thread: Thread, tag: u32) -> bool {
    let address = call.address;
    if address == 0 {
        return true;
    }
    call.address = 0;
    // If the block was freed, its address may belong to a block of another thread. The record of that thread is not taken.
    match take(waiting_block(thread.pid, address), Some(thread.tid)) {
        Some(record) => send(address, record, tag),
        None => true,
    }
}

/// Sends the waiting record of the thread `tid` of the current process, if there is one. `tag`: id of the block's tag, or
/// [`SAME_TAG`]. Returns the number of lost records. The function is global, so that the verifier does not check it for each
/// call.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn late_tag_send(tid: u32, tag: u32) -> u64 {
    let Some(call) = of_thread(tid) else { return 0 };
    if send_of_call(call, Thread { tid, ..Thread::current() }, tag) { 0 } else { 1 }
}

/// Sends the record of the block at `address` if it waits. The thread `tid` is about to free the block. Returns the number
/// of lost records. The function is global, like [`late_tag_send`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn late_tag_before_free(pid: u32, tid: u32, address: u64) -> u64 {
    if let Some(call) = of_thread(tid)
        && call.address == address
    {
        // The next tag that the program asks for belongs to the next block.
        call.address = 0;
    }
    match take(waiting_block(pid, address), None) {
        Some(record) => u64::from(!send(address, record, SAME_TAG)),
        None => 0,
    }
}

/// Keeps the record of a block if the current thread is in a call of a wrapper. Returns [`DEFERRED`] if the record waits, else
/// the id of the block's tag; adds [`LOST`] if an earlier record was lost. The function is global, because the programs at
/// returns have little stack left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn late_tag_defer(address: u64, size: u64, stack: u64, tag: u32, stack_pointer: u64) -> u64 {
    let thread = Thread::current();
    let tag = tag as u64 & TAG;
    let Some(call) = of_thread(thread.tid) else { return tag };
    if call.stack_pointer == 0 {
        return tag;
    }
    let lost = if send_of_call(call, thread, SAME_TAG) { 0 } else { LOST };
    if stack_pointer > call.stack_pointer {
        // An exception or a longjmp has ended the call.
        call.stack_pointer = 0;
        return tag | lost;
    }
    if call.next_tag != UNTAGGED {
        // The program asked for the tag before it allocated the block.
        let tag = call.next_tag as u64 & TAG;
        call.next_tag = UNTAGGED;
        return tag | lost;
    }
    let record = WaitingRecord { size, stack, pid: thread.pid, tid: thread.tid, tag };
    if WAITING_RECORDS.insert(&waiting_block(thread.pid, address), &record, 0).is_err() {
        // The map is full. The tag that the program will ask for is missed, as in a thread without a slot.
        loss::count_without_log(LossReason::PendingFull);
        return tag | lost;
    }
    call.address = address;
    DEFERRED | lost
}
