//! Slots of threads with a pending call.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;

use crate::atomic;
use crate::limits::PENDING_SLOTS;
use crate::settings;

/// Number of slots that a thread may use: the slot that its thread id selects, and the next ones.
const TRIES: u32 = 8;

/// State of a thread's allocator calls. Its size is 64 bytes, so that no two threads share a cache line.
#[repr(C, align(64))]
pub struct Slot {
    /// Id of the thread that owns the slot; 0: the slot is free. It is set atomically. Only the owner uses the other
    /// fields.
    owner: u64,
    /// Stack pointer at the entry of the pending call; 0: no call is pending.
    pub stack_pointer: u64,
    pub call: u32,
    /// Upper half of the probe's cookie: flags, and the id that user space gave the allocator. The id is 0 if records
    /// do not name allocators.
    pub allocator: u32,
    pub size: u64,
    pub aux: u64,
    /// Number of nested calls since the entry of the pending call.
    pub nested: u32,
    /// Number of the thread's interrupted calls.
    pub interrupted: u32,
    pub extra: u64,
    /// Address of the block that the thread's latest allocation returned; 0 if the thread has freed it.
    pub last_block: u64,
}

#[btf_map]
static PENDING: Array<Slot, PENDING_SLOTS> = Array::new();

#[inline(always)]
fn index(tid: u32, attempt: u32) -> u32 {
    tid.wrapping_add(attempt) & (settings::pending_slots() - 1)
}

#[inline(always)]
fn slot_at(tid: u32, attempt: u32) -> Option<&'static mut Slot> {
    let slot = PENDING.get_ptr_mut(index(tid, attempt))?;
    // SAFETY: the pointer refers to a map value. Fields except `owner` are used by the slot's owner only, and `owner`
    // is read as one word.
    Some(unsafe { &mut *slot })
}

#[inline(always)]
pub fn find(tid: u32) -> Option<&'static mut Slot> {
    for attempt in 0..TRIES {
        let slot = slot_at(tid, attempt)?;
        if slot.owner == tid as u64 {
            return Some(slot);
        }
    }
    None
}

#[inline(always)]
pub fn find_index(tid: u32) -> Option<u32> {
    let attempt = (0..TRIES).find(|&attempt| slot_at(tid, attempt).is_some_and(|slot| slot.owner == tid as u64))?;
    Some(index(tid, attempt))
}

#[inline(always)]
pub fn claim(tid: u32) -> Option<&'static mut Slot> {
    for attempt in 0..TRIES {
        let slot = slot_at(tid, attempt)?;
        // SAFETY: `owner` is the slot's first word, aligned.
        if unsafe { atomic::lock(&raw mut slot.owner, tid as u64) } {
            slot.stack_pointer = 0;
            slot.interrupted = 0;
            slot.last_block = 0;
            return Some(slot);
        }
    }
    None
}

/// Calls `on_release` with the thread's slot, and then releases the slot.
#[inline(always)]
pub fn release(tid: u32, on_release: impl FnOnce(&mut Slot)) {
    for attempt in 0..TRIES {
        let Some(slot) = slot_at(tid, attempt) else { return };
        if slot.owner == tid as u64 {
            slot.stack_pointer = 0;
            on_release(slot);
            // SAFETY: `owner` is the slot's first word, aligned.
            unsafe { atomic::unlock(&raw mut slot.owner) };
            return;
        }
    }
}
