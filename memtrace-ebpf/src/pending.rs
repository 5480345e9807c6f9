//! Calls that have begun and not yet returned.
//!
//! Each thread that allocates owns one slot, claimed at its first call and given back when it ends. The slot remembers
//! the outermost allocator call; calls inside it (calloc's malloc, a realloc's free) are recognised by their deeper stack
//! pointer and not counted, and a return belongs to the call whose stack pointer it restores. So no depth has to be kept
//! that a missed return could spoil.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::{Cookie, LossReason};

use crate::atomic::first;
use crate::registers::POPPED_BY_RETURN;
use crate::thread::Thread;
use crate::{atomic, loss, settings};

/// How many threads can be inside of an allocator, or have been and live still.
pub const SLOTS: usize = 65_536;
/// How many slots a thread may try.
const TRIES: u32 = 8;
/// So many calls inside one that never returns, and it is given up.
const MAX_NESTED: u64 = 64;

/// What a call will do when it returns.
#[derive(Clone, Copy, PartialEq)]
#[repr(u64)]
pub enum Call {
    /// Returns the block.
    Alloc = 0,
    /// Stores the block's address at `aux`.
    AllocOut = 1,
    /// Returns the new block instead of the one at `aux`.
    Realloc = 2,
    /// Returns how many bytes the block at `aux` has now.
    Resize = 3,
    /// Returns nothing that matters.
    Free = 4,
}

impl Call {
    /// Whether the call gives up the block at `aux`.
    #[inline(always)]
    fn gives_up(self) -> bool {
        matches!(self, Self::Realloc | Self::Resize | Self::Free)
    }
}

/// A call's arguments.
#[derive(Clone, Copy)]
pub struct Pending {
    pub call: Call,
    /// The bytes asked for.
    pub size: u64,
    /// See [`Call`].
    pub aux: u64,
    /// How many bytes more were welcome.
    pub extra: u64,
}

/// 64 bytes, so that no two threads share a cache line.
#[repr(C, align(64))]
struct Slot {
    /// The thread's id; 0: free. Claimed atomically, and from then on only touched by its owner.
    owner: u64,
    /// The stack pointer at the outermost call's entry; 0: no call.
    stack_pointer: u64,
    call: u64,
    size: u64,
    aux: u64,
    /// How many calls were made inside this one.
    nested: u64,
    extra: u64,
    /// Who was called: the number that user space gave the allocator; 0 where nobody asks.
    allocator: u64,
}

#[btf_map]
static PENDING: Array<Slot, SLOTS> = Array::new();

/// How a new call stands to the one in progress.
#[derive(Clone, Copy, PartialEq)]
pub enum Entry {
    /// It is the outermost.
    Outermost,
    /// It replaces the outermost by a jump at its end.
    TailCall,
    /// It is inside another, which counts instead.
    Nested,
}

#[inline(always)]
fn index(tid: u32, attempt: u32) -> u32 {
    tid.wrapping_add(attempt) & (SLOTS as u32 - 1)
}

#[inline(always)]
fn slot_at(tid: u32, attempt: u32) -> Option<&'static mut Slot> {
    let slot = PENDING.get_ptr_mut(index(tid, attempt))?;
    // SAFETY: the pointer is a map value's. Fields but `owner` are touched only by the thread that owns the slot, and
    // `owner` is read as one word.
    Some(unsafe { &mut *slot })
}

/// The thread's slot, if it has one.
#[inline(always)]
fn find(tid: u32) -> Option<&'static mut Slot> {
    for attempt in 0..TRIES {
        let slot = slot_at(tid, attempt)?;
        if slot.owner == tid as u64 {
            return Some(slot);
        }
    }
    None
}

#[inline(always)]
fn claim(tid: u32) -> Option<&'static mut Slot> {
    for attempt in 0..TRIES {
        let slot = slot_at(tid, attempt)?;
        // SAFETY: `owner` is the slot's first word, aligned.
        if unsafe { atomic::take(&raw mut slot.owner, first::PENDING + index(tid, attempt), tid as u64) } {
            slot.stack_pointer = 0;
            return Some(slot);
        }
    }
    None
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
    // The frame that was in progress is gone, or goes on for too long: its return was not seen.
    loss::count(context, LossReason::PendingStale, 1 + slot.nested);
    slot.stack_pointer = 0;
    Entry::Outermost
}

/// How a call that gives up `block` and no result back, entered at `stack_pointer`, stands to the one in progress.
#[inline(always)]
pub fn enter(context: &impl EbpfContext, thread: Thread, stack_pointer: u64, block: u64) -> Entry {
    let Some(slot) = find(thread.tid) else { return Entry::Outermost };
    match classify(context, slot, stack_pointer) {
        // By a jump to it, the call in progress gives up what it was told to.
        Entry::TailCall if slot.call == Call::Free as u64 && slot.aux == block => Entry::Nested,
        entry => entry,
    }
}

/// Remembers a call until it returns, unless it is nested.
///
/// `None`: there was no room, and the loss has been counted.
#[inline(always)]
pub fn begin(context: &impl EbpfContext, thread: Thread, stack_pointer: u64, pending: Pending) -> Option<Entry> {
    let slot = match find(thread.tid) {
        Some(slot) => slot,
        None => match claim(thread.tid) {
            Some(slot) => slot,
            None => {
                loss::count(context, LossReason::PendingFull, 1);
                return None;
            }
        },
    };
    let entry = classify(context, slot, stack_pointer);
    if entry == Entry::Nested {
        return Some(entry);
    }
    // A block is given up once, however many functions jump to one another to do it.
    let same = slot.call == pending.call as u64 && slot.aux == pending.aux && pending.call.gives_up();
    let parked = entry == Entry::TailCall && same;
    slot.stack_pointer = stack_pointer;
    slot.call = pending.call as u64;
    slot.size = pending.size;
    slot.aux = pending.aux;
    slot.extra = pending.extra;
    slot.allocator = if settings::tells_allocators() { allocator(context) } else { 0 };
    slot.nested = 0;
    Some(if parked { Entry::TailCall } else { Entry::Outermost })
}

/// The allocator's number in what the probe was told when it was placed (Linux 5.15).
#[inline(always)]
fn allocator(context: &impl EbpfContext) -> u64 {
    // SAFETY: the context is the program's own.
    unsafe { bpf_get_attach_cookie(context.as_ptr()) >> Cookie::ALLOCATOR_SHIFT }
}

/// The call that returns with `stack_pointer`, if it is the outermost, and the number of the allocator that was called.
#[inline(always)]
pub fn finish(context: &impl EbpfContext, thread: Thread, stack_pointer: u64) -> Option<(Pending, u16)> {
    let slot = find(thread.tid)?;
    if slot.stack_pointer == 0 {
        return None;
    }
    let popped = slot.stack_pointer.wrapping_add(POPPED_BY_RETURN);
    if stack_pointer < popped {
        return None;
    }
    slot.stack_pointer = 0;
    if stack_pointer > popped {
        loss::count(context, LossReason::PendingStale, 1 + slot.nested);
        return None;
    }
    let call = match slot.call {
        0 => Call::Alloc,
        1 => Call::AllocOut,
        2 => Call::Realloc,
        3 => Call::Resize,
        _ => Call::Free,
    };
    Some((Pending { call, size: slot.size, aux: slot.aux, extra: slot.extra }, slot.allocator as u16))
}

/// Forgets a thread that has ended, or whose program was replaced.
#[inline(always)]
pub fn forget(tid: u32) {
    for attempt in 0..TRIES {
        let Some(slot) = slot_at(tid, attempt) else { return };
        if slot.owner == tid as u64 {
            slot.stack_pointer = 0;
            // SAFETY: `owner` is the slot's first word, aligned.
            unsafe { atomic::give_back(&raw mut slot.owner, first::PENDING + index(tid, attempt)) };
            return;
        }
    }
}
