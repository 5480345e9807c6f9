//! Pending allocator calls: calls that have neither returned nor passed a result site.
//!
//! Each thread that allocates owns one slot, from its first call until it exits or calls exec. The slot has the outermost
//! allocator call. Nested calls (calloc's malloc, realloc's free) have a lower stack pointer and are not recorded. The stack
//! pointer identifies the call that a return belongs to, so a missed return does not affect later returns. Calls that are
//! interrupted, by a signal or because they fail, are kept in [`interrupted`].

mod interrupted;
mod slot;

use aya_ebpf::EbpfContext;
use memtrace_common::vocabulary::{Cookie, LossReason, ResultCookie};

use crate::registers::POPPED_BY_RETURN;
use crate::thread::Thread;
use crate::{arguments, loss, settings};
use slot::{Slot, claim, find};

pub use interrupted::interrupt;

/// Maximum number of nested calls. If a pending call has more nested calls, its return was missed, and the pending call
/// is dropped.
pub const MAX_NESTED: u32 = 64;

/// Kind of a call. It determines the handling of the return.
#[derive(Clone, Copy, PartialEq)]
#[repr(u32)]
pub enum Call {
    /// Returns the block.
    Alloc = 0,
    /// Stores the block's address at `aux`.
    AllocOut = 1,
    /// Returns the new block, which replaces the block at `aux`.
    Realloc = 2,
    /// Returns the new size of the block at `aux`.
    Resize = 3,
    /// Returns nothing.
    Free = 4,
    /// Calls functions that free blocks. These blocks were freed before. Returns nothing.
    RepeatFrees = 5,
}

impl Call {
    /// Returns true if the call frees the block at `aux`.
    #[inline(always)]
    fn is_free(self) -> bool {
        matches!(self, Self::Realloc | Self::Resize | Self::Free)
    }
}

/// Value of [`Pending::extra`] for an allocation with a size that the function rounds up to whole pages.
pub const ROUNDS_TO_PAGES: u64 = 1;

/// Smallest size of a page in bytes.
const SMALLEST_PAGE: u64 = 4096;
/// Largest size of a page in bytes.
const LARGEST_PAGE: u64 = 65536;

/// Arguments of a call.
#[derive(Clone, Copy)]
pub struct Pending {
    pub call: Call,
    /// Requested bytes.
    pub size: u64,
    /// Address of a block or of a pointer; see [`Call`].
    pub aux: u64,
    /// Bytes that a resize may add to `size`; [`ROUNDS_TO_PAGES`] or [`interrupted::HAS_FAILED`] for an allocation.
    pub extra: u64,
}

/// A call that a thread has entered.
#[derive(Clone, Copy)]
pub struct EnteredCall {
    pub entry: Entry,
    /// True if the call frees the block that the thread's latest allocation returned.
    pub frees_last_block: bool,
}

impl EnteredCall {
    /// Result for a thread without a slot.
    const WITHOUT_SLOT: Self = Self { entry: Entry::Outermost, frees_last_block: false };
}

/// A call that has returned.
pub struct ReturnedCall {
    pub pending: Pending,
    /// Id that user space gave the allocator of the function; 0 if records do not name allocators.
    pub allocator: u16,
    /// True if the allocator stores the size of a block in front of the block, as glibc does.
    pub has_sizes: bool,
    slot: &'static mut Slot,
}

impl ReturnedCall {
    /// Returns true if a call inside this call has already recorded `block`. After this call has failed, calls inside it
    /// count as outermost calls.
    #[inline(always)]
    pub fn has_recorded(&self, block: u64) -> bool {
        self.pending.extra == interrupted::HAS_FAILED && self.slot.last_block == block
    }

    /// Notes `block` as the last one of the thread.
    #[inline(always)]
    pub fn set_last_block(&mut self, block: u64) {
        self.slot.last_block = block;
    }

    /// Forgets the last block of the thread if it is `block`, because the call has freed `block`.
    #[inline(always)]
    pub fn forget_block(&mut self, block: u64) {
        take_last_block(self.slot, block);
    }
}

/// Relation of a new call to the pending one.
#[derive(Clone, Copy, PartialEq)]
pub enum Entry {
    Outermost,
    /// The pending call ended with a jump to the new function.
    TailCall,
    /// The new call is inside the pending one. Only the pending call is recorded.
    Nested,
    /// The new call frees a block again, inside a pending [`Call::RepeatFrees`].
    Repeated,
}

#[inline(always)]
fn classify(context: &impl EbpfContext, slot: &mut Slot, stack_pointer: u64) -> Entry {
    if slot.stack_pointer == 0 {
        return Entry::Outermost;
    }
    if stack_pointer == slot.stack_pointer {
        return Entry::TailCall;
    }
    if stack_pointer < slot.stack_pointer && slot.nested < MAX_NESTED {
        slot.nested += 1;
        loss::nested();
        return Entry::Nested;
    }
    // The return of the pending call was missed: its frame is gone, or it has too many nested calls.
    loss::count(context, LossReason::PendingStale, 1 + slot.nested as u64);
    slot.stack_pointer = 0;
    Entry::Outermost
}

/// Handles the entry, at `stack_pointer`, of a function that frees `block` and has no probe at its return. The call
/// does not become pending.
#[inline(always)]
pub fn enter_free(context: &impl EbpfContext, thread: Thread, stack_pointer: u64, block: u64) -> EnteredCall {
    let Some(slot) = find(thread.tid) else { return EnteredCall::WITHOUT_SLOT };
    interrupted::resume_at_entry(slot, thread.tid, stack_pointer);
    if stack_pointer <= slot.stack_pointer && slot.call == Call::RepeatFrees as u32 {
        return EnteredCall { entry: Entry::Repeated, frees_last_block: false };
    }
    let entry = match classify(context, slot, stack_pointer) {
        // The pending call frees `block` itself, and has jumped to the new function to do so.
        Entry::TailCall if slot.call == Call::Free as u32 && slot.aux == block => Entry::Nested,
        entry => entry,
    };
    EnteredCall { entry, frees_last_block: entry != Entry::Nested && take_last_block(slot, block) }
}

/// Returns true if `block` is the thread's last block, and forgets it, because `block` is freed.
#[inline(always)]
fn take_last_block(slot: &mut Slot, block: u64) -> bool {
    let is_last = slot.last_block == block;
    if is_last {
        // Another thread can reuse the address.
        slot.last_block = 0;
    }
    is_last
}

/// Returns the slot of the thread; claims one if the thread has none. If no slot is free, counts a loss.
#[inline(always)]
fn find_or_claim(context: &impl EbpfContext, thread: Thread) -> Option<&'static mut Slot> {
    if let Some(slot) = find(thread.tid) {
        return Some(slot);
    }
    let slot = claim(thread.tid);
    if slot.is_none() {
        loss::count(context, LossReason::PendingFull, 1);
    }
    slot
}

/// Makes a call the pending one until it returns, unless it is nested.
///
/// Returns `None` if no slot was free. The loss has been counted.
#[inline(always)]
pub fn begin(context: &impl EbpfContext, thread: Thread, stack_pointer: u64, pending: Pending) -> Option<EnteredCall> {
    let slot = find_or_claim(context, thread)?;
    interrupted::resume_at_entry(slot, thread.tid, stack_pointer);
    let entry = classify(context, slot, stack_pointer);
    if entry == Entry::Nested {
        return Some(EnteredCall { entry, frees_last_block: false });
    }
    // If several functions jump to one another to free a block, the free counts only once.
    let same = slot.call == pending.call as u32 && slot.aux == pending.aux && pending.call.is_free();
    let already_freed = entry == Entry::TailCall && same;
    // `extra` is kept for the new function, because it may pass the rounded size to a third function.
    let (size, extra) = if entry == Entry::TailCall && is_rounded(slot, pending.size) {
        (slot.size, ROUNDS_TO_PAGES)
    } else {
        (pending.size, pending.extra)
    };
    slot.stack_pointer = stack_pointer;
    slot.call = pending.call as u32;
    slot.size = size;
    slot.aux = pending.aux;
    slot.extra = extra;
    slot.allocator = if settings::records_allocators() || settings::has_usable_sizes() {
        (arguments::cookie(context).0 >> Cookie::ALLOCATOR_SHIFT) as u32
    } else {
        0
    };
    slot.nested = 0;
    if settings::min_call() != u64::MAX && entry != Entry::TailCall {
        crate::activity::begin_call(thread, arguments::cookie(context).function());
    }
    if already_freed {
        return Some(EnteredCall { entry: Entry::TailCall, frees_last_block: false });
    }
    let frees_last_block = match pending.call {
        Call::Free => take_last_block(slot, pending.aux),
        // The block stays the last block of the thread, because the call may fail.
        Call::Realloc | Call::Resize => slot.last_block == pending.aux,
        Call::Alloc | Call::AllocOut | Call::RepeatFrees => false,
    };
    Some(EnteredCall { entry: Entry::Outermost, frees_last_block })
}

/// Returns true if `size` is the size of the pending call, rounded up to whole pages. The pending call has jumped to
/// another function, which has got `size` as its requested size.
#[inline(always)]
fn is_rounded(slot: &Slot, size: u64) -> bool {
    slot.call == Call::Alloc as u32
        && slot.extra == ROUNDS_TO_PAGES
        && size % SMALLEST_PAGE == 0
        && size >= slot.size
        && size - slot.size < LARGEST_PAGE
}

/// Ends the call of a function that was entered at `stack_pointer` and is about to return a block. Returns `None` if
/// the call is nested. If `size` is `None`, the size is taken from the pending call; without a pending call, the result
/// is `None`.
#[inline(always)]
pub fn result(
    context: &impl EbpfContext,
    thread: Thread,
    stack_pointer: u64,
    cookie: ResultCookie,
    size: Option<u64>,
) -> Option<ReturnedCall> {
    let slot = find_or_claim(context, thread)?;
    interrupted::resume_at_entry(slot, thread.tid, stack_pointer);
    let entry = classify(context, slot, stack_pointer);
    if entry == Entry::Nested {
        return None;
    }
    let size = match size {
        Some(size) if entry == Entry::TailCall && is_rounded(slot, size) => slot.size,
        Some(size) => size,
        None if entry == Entry::TailCall => slot.size,
        // The call began before recording did.
        None => return None,
    };
    slot.stack_pointer = 0;
    let allocator = (cookie.0 >> Cookie::ALLOCATOR_SHIFT) as u16;
    let has_sizes = cookie.0 & Cookie::HAS_SIZES != 0;
    let pending = Pending { call: Call::Alloc, size, aux: 0, extra: 0 };
    Some(ReturnedCall { pending, allocator, has_sizes, slot })
}

/// Ends the pending call if it was entered at `stack_pointer`, because this call fails.
#[inline(always)]
pub fn fail(thread: Thread, stack_pointer: u64) {
    let Some(slot) = find(thread.tid) else { return };
    interrupted::resume_at_entry(slot, thread.tid, stack_pointer);
    if slot.stack_pointer == stack_pointer {
        slot.stack_pointer = 0;
    }
}

/// Handles the entry, at `stack_pointer`, of a function that an allocating function calls after it has failed. If the pending
/// call has called this function, it becomes an interrupted call, because code of the program runs next.
#[inline(always)]
pub fn interrupt_failed(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) {
    let Some(slot) = find(thread.tid) else { return };
    interrupted::resume_at_entry(slot, thread.tid, stack_pointer);
    if stack_pointer <= slot.stack_pointer && slot.call == Call::Alloc as u32 {
        interrupted::interrupt_failed(context, thread.tid);
    }
}

/// Ends and returns the pending call if the thread returns from this call. `stack_pointer` is the value after the
/// return. If the stack pointer of the pending call is lower, its return was missed, and the pending call is dropped.
#[inline(always)]
pub fn finish(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) -> Option<ReturnedCall> {
    let slot = find(thread.tid)?;
    interrupted::resume_at_return(slot, thread.tid, stack_pointer);
    if slot.stack_pointer == 0 {
        return None;
    }
    let popped = slot.stack_pointer.wrapping_add(POPPED_BY_RETURN);
    if stack_pointer < popped {
        return None;
    }
    slot.stack_pointer = 0;
    if stack_pointer > popped {
        loss::count(context, LossReason::PendingStale, 1 + slot.nested as u64);
        return None;
    }
    let call = match slot.call {
        0 => Call::Alloc,
        1 => Call::AllocOut,
        2 => Call::Realloc,
        3 => Call::Resize,
        4 => Call::Free,
        _ => Call::RepeatFrees,
    };
    let pending = Pending { call, size: slot.size, aux: slot.aux, extra: slot.extra };
    let has_sizes = (slot.allocator as u64) << Cookie::ALLOCATOR_SHIFT & Cookie::HAS_SIZES != 0;
    Some(ReturnedCall { pending, allocator: slot.allocator as u16, has_sizes, slot })
}

/// Returns the index of the thread's slot.
#[inline(always)]
pub fn slot_of(tid: u32) -> Option<u32> {
    slot::find_index(tid)
}

/// Returns true if the thread's pending call was entered at `stack_pointer`.
#[inline(always)]
pub fn is_pending(tid: u32, stack_pointer: u64) -> bool {
    find(tid).is_some_and(|slot| slot.stack_pointer == stack_pointer)
}

/// Returns the index of the thread's slot; claims one if the thread has none.
#[inline(always)]
pub fn claim_slot(tid: u32) -> Option<u32> {
    if let Some(index) = slot::find_index(tid) {
        return Some(index);
    }
    claim(tid)?;
    slot::find_index(tid)
}

/// Releases the slot of a thread that exits or has called exec.
#[inline(always)]
pub fn forget(tid: u32) {
    slot::release(tid, |slot| interrupted::forget(slot, tid));
}
