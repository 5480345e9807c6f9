//! Scratch memory for stacks, which are too large for a program's own stack.

use core::mem::MaybeUninit;

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{Mapping, ObjectKey, Process, Rule};
use memtrace_common::wire::{MAX_FRAMES, StackRecord};
use memtrace_unwind::{Walk, Window};

use crate::atomic;
use crate::limits::SCRATCH_SLOTS;
use crate::registers::Registers;
use crate::settings;
use crate::thread::Thread;

/// Number of slots that a thread tries.
const TRIES: u32 = 4;

/// Returned by [`claim`] if no slot is free.
pub const NO_SLOT: u32 = SCRATCH_SLOTS as u32;

/// Number of recent stacks, a power of two.
pub const RECENT: usize = 16;

/// Memory of one stack. The frames follow the record, so that both are sent at once.
#[repr(C)]
pub struct Scratch {
    /// The lock.
    busy: u64,
    /// Stacks that were sent and found again, each at the place of its lower bits.
    pub recent: [u64; RECENT],
    pub record: StackRecord,
    pub frames: [u64; MAX_FRAMES],
    pub walk: WalkState,
    /// Rule of the last look-up.
    pub rule: Rule,
    /// Copy of the registers of an interrupted thread.
    pub registers: MaybeUninit<Registers>,
}

/// A walk by unwind tables.
#[repr(C)]
pub struct WalkState {
    pub walk: Walk,
    pub process: Process,
    /// Mapping of the last look-up.
    pub mapping: Mapping,
    /// VMA of the last look-up.
    pub vma: Vma,
    pub pid: u32,
    /// Why the walk ended: an `End`.
    pub end: u32,
    pub window: Window,
}

/// A VMA, as the callback of `bpf_find_vma` reads it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Vma {
    pub begin: u64,
    pub end: u64,
    /// Offset of `begin` in the file, in bytes.
    pub offset: u64,
    pub object: ObjectKey,
    pub executable: bool,
    /// True if a file is mapped, or the vDSO.
    pub is_file: bool,
    /// True if all fields could be read.
    pub is_read: bool,
}

/// Per-CPU memory would be overwritten by a program that preempts this one. A slot belongs to a thread until it is
/// released.
#[btf_map]
static SCRATCH: Array<Scratch, SCRATCH_SLOTS> = Array::new();

impl Scratch {
    /// Returns the scratch memory of `slot`, which the caller has claimed.
    #[inline(always)]
    pub fn get(slot: u32) -> Option<&'static mut Self> {
        // SAFETY: a map value's pointer; the owner of the slot alone uses it.
        SCRATCH.get_ptr_mut(slot).map(|scratch| unsafe { &mut *scratch })
    }
}

/// Claims scratch memory for the thread. Returns its slot, or [`NO_SLOT`] if none is free.
///
/// This is not a function that takes a closure: the closure would have a stack frame, and there is no space for one.
#[inline(always)]
pub fn claim(thread: Thread) -> u32 {
    for attempt in 0..TRIES {
        let slot = thread.tid.wrapping_add(attempt) & (settings::scratch_slots() - 1);
        let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) else { break };
        // SAFETY: a map value's pointer; `busy` is its first word.
        if unsafe { atomic::lock(busy, 1) } {
            return slot;
        }
    }
    NO_SLOT
}

/// Releases a slot that [`claim`] returned.
#[inline(always)]
pub fn release(slot: u32) {
    if let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) {
        // SAFETY: as above.
        unsafe { atomic::unlock(busy) };
    }
}

/// Copies a mapping field by field. The compiler cannot exclude that the two overlap, and would emit a loop over bytes,
/// which takes long to verify.
#[inline(always)]
pub fn copy_mapping(into: &mut Mapping, from: &Mapping) {
    let Mapping { begin, end, bias, page_base, pages_and_kind } = *from;
    into.begin = begin;
    into.end = end;
    into.bias = bias;
    into.page_base = page_base;
    into.pages_and_kind = pages_and_kind;
}
