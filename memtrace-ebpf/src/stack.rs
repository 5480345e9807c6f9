//! Call stacks: each is walked and hashed, and sent if it is new.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    End, MAX_PIECES, PIECE_BYTES, RecordKind, STACK_FAILED, STACK_FIRST, STACK_NOT_TAKEN, StackRecord,
};
use memtrace_unwind::mix;

use crate::origin::Origin;
use crate::scratch::{NO_SLOT, RECENT, Scratch, claim, release};
use crate::thread::{Thread, since_start};
use crate::unwind::Walked;
use crate::{address_space, emit, loss, settings, unwind};

/// Mask of the offset of an address in its page.
const PAGE_MASK: u64 = (1 << 12) - 1;

/// Ids of the stacks that have been sent. A stack with an evicted id is sent again.
#[btf_map]
static SENT: LruHashMap<u64, u32, 65536> = LruHashMap::new();

/// Walks the stack from `origin`, sends its frames to the ring `ring` if the stack is new, and returns its id.
#[inline(always)]
pub fn take(context: &impl EbpfContext, origin: &impl Origin, thread: Thread, ring: u32) -> u64 {
    if settings::max_depth() == 0 {
        return STACK_NOT_TAKEN;
    }
    let slot = claim(thread);
    if slot == NO_SLOT {
        loss::count(context, LossReason::ScratchBusy, 1);
        return STACK_FAILED;
    }
    let id = identify(context, origin, thread, ring, slot);
    release(slot);
    id
}

#[inline(always)]
fn identify(context: &impl EbpfContext, origin: &impl Origin, thread: Thread, ring: u32, slot: u32) -> u64 {
    // The seed includes the generation of the mappings, because frames are absolute addresses. It includes the main
    // process, so that equal stacks of processes that share their memory are one stack.
    let main = address_space::main_process(thread.pid);
    let walked = match unwind::process(thread.pid) {
        Some(process) => {
            let seed = unwind::seed(main, &process);
            unwind::walk(slot, thread.pid, process, origin, seed)
        }
        None => Walked::FAILED,
    };
    let Walked { frames, hash, end } = walked;
    if end == 0 {
        loss::count(context, LossReason::StackFailed, 1);
        return STACK_FAILED;
    }
    let id = if hash < STACK_FIRST { hash + STACK_FIRST } else { hash };
    if let Some(scratch) = Scratch::get(slot)
        && !is_known(&mut scratch.recent, id)
    {
        scratch.record =
            StackRecord { header: thread.header(RecordKind::Stack), stack: id, frames, end, taken: since_start() };
        // If the record is lost, the id is not inserted, and the stack is sent again. The same holds if the insertion
        // fails.
        if emit::stack(context, ring, scratch, frames) {
            let _ = SENT.insert(&id, 1u32, 0);
        }
    }
    if end == End::TablePending as u32 {
        let copy = stack_copy(slot, id);
        if copy != 0 {
            return copy;
        }
    }
    id
}

/// Returns true if the stack has been sent. For the ids in `recent`, no map look-up is needed.
#[inline(always)]
fn is_known(recent: &mut [u64; RECENT], id: u64) -> bool {
    let place = &mut recent[id as usize & (RECENT - 1)];
    if *place == id {
        return true;
    }
    // SAFETY: the value is not read.
    let is_known = unsafe { SENT.get(&id) }.is_some();
    if is_known {
        *place = id;
    }
    is_known
}

/// Sends a stack copy for the walk in the scratch memory of `slot`, which was cut. `cut` is the id of the frames found
/// so far. Returns the id of the copy, or 0 if the ring of copies is full. The function is global, like the step of a
/// walk.
///
/// Each cut stack is copied, because stacks with the same frames so far can have different callers.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn stack_copy(slot: u32, cut: u64) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return 0 };
    let thread = Thread::current();
    let taken = since_start();
    let id = mix(mix(cut, taken), thread.tid as u64);
    if id < STACK_FIRST {
        return 0;
    }
    let frames = scratch.walk.walk.count();
    let end = End::TablePending as u32;
    scratch.record = StackRecord { header: thread.header(RecordKind::Stack), stack: id, frames, end, taken };
    if !emit::copied_frames(scratch, frames) {
        return 0;
    }
    let sp = scratch.walk.walk.position().sp;
    let mut address = sp & !(PIECE_BYTES - 1);
    let limit = unwind::stack_limit(sp);
    for _ in 0..MAX_PIECES {
        if address >= limit {
            break;
        }
        address = stack_copy_piece(id, address);
        if address == RING_FULL {
            return 0;
        }
    }
    let main = address_space::main_process(thread.pid);
    let Some(scratch) = Scratch::get(slot) else { return 0 };
    let seed = unwind::seed(main, &scratch.walk.process);
    if emit::copied_end(main, id, cut, seed, unwind::main_stack_start(), &scratch.walk.walk) { id } else { 0 }
}

/// Result of [`stack_copy_piece`] if the ring is full.
const RING_FULL: u64 = 0;

/// Copies the piece at `address`, and returns the address of the next one. Skips a page that cannot be read: the page
/// was never written, or the stack ends below it. The function is global, like the step of a walk.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn stack_copy_piece(id: u64, address: u64) -> u64 {
    if !unwind::is_readable(address) {
        return (address | PAGE_MASK).wrapping_add(1);
    }
    if emit::copied_piece(id, address) { address.wrapping_add(PIECE_BYTES) } else { RING_FULL }
}
