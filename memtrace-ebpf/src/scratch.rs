//! Scratch memory for stack walks. The state of a walk is too large for the BPF stack.

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

/// Number of slots that a thread may use: the slot that its thread id selects, and the next ones.
const TRIES: u32 = 4;

/// Result of [`claim`] if no slot is free.
pub const NO_SLOT: u32 = SCRATCH_SLOTS as u32;

/// Number of recent stack ids that a slot keeps, a power of two.
pub const RECENT: usize = 16;

/// Scratch memory for one stack walk. The frames follow the record, so that both are sent at once.
#[repr(C)]
pub struct Scratch {
    /// Lock: 1 while a thread owns the slot, else 0.
    busy: u64,
    /// Ids of stacks that are known to have been sent. The lower bits of an id are its index.
    pub recent: [u64; RECENT],
    pub record: StackRecord,
    pub frames: [u64; MAX_FRAMES],
    pub walk: WalkState,
    /// Unwind rule that the last look-up returned.
    pub rule: Rule,
    /// Copy of the registers of an interrupted thread.
    pub registers: MaybeUninit<Registers>,
}

/// State of a walk by unwind tables.
#[repr(C)]
pub struct WalkState {
    pub walk: Walk,
    pub process: Process,
    /// Mapping that the last look-up returned.
    pub mapping: Mapping,
    /// VMA that the last look-up in the kernel found.
    pub vma: Vma,
    pub pid: u32,
    /// Reason that the walk ended: an `End`.
    pub end: u32,
    pub window: Window,
}

/// A copy of a VMA of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Vma {
    pub begin: u64,
    pub end: u64,
    /// Offset of `begin` in the file, in bytes.
    pub offset: u64,
    pub object: ObjectKey,
    pub executable: bool,
    /// True if the VMA maps a file or the vDSO.
    pub is_file: bool,
    /// True if all fields could be read.
    pub is_read: bool,
}

/// Slots of scratch memory. A slot belongs to a thread until the thread releases it. Per-CPU memory is not possible:
/// a program that preempts the owner would overwrite it.
#[btf_map]
static SCRATCH: Array<Scratch, SCRATCH_SLOTS> = Array::new();

impl Scratch {
    /// Returns the scratch memory of `slot`, which the caller has claimed.
    #[inline(always)]
    pub fn get(slot: u32) -> Option<&'static mut Self> {
        // SAFETY: the pointer refers to a map value. Only the owner of the slot uses it.
        SCRATCH.get_ptr_mut(slot).map(|scratch| unsafe { &mut *scratch })
    }
}

/// Claims scratch memory for the thread. Returns its slot, or [`NO_SLOT`] if none is free.
///
/// The caller releases the slot with [`release`]. A function that takes a closure would need another stack frame, and
/// the BPF stack has no space for it.
#[inline(always)]
pub fn claim(thread: Thread) -> u32 {
    for attempt in 0..TRIES {
        let slot = thread.tid.wrapping_add(attempt) & (settings::scratch_slots() - 1);
        let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) else { break };
        // SAFETY: the pointer refers to a map value, and `busy` is its first word.
        if unsafe { atomic::lock(busy, 1) } {
            return slot;
        }
    }
    NO_SLOT
}

/// Releases a slot that [`claim`] has returned.
#[inline(always)]
pub fn release(slot: u32) {
    if let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) {
        // SAFETY: as above.
        unsafe { atomic::unlock(busy) };
    }
}

/// Copies a mapping field by field. For a copy of the whole structure, the compiler would emit a loop over bytes, because it
/// cannot exclude that the two mappings overlap. Such a loop takes long to verify.
#[inline(always)]
pub fn copy_mapping(into: &mut Mapping, from: &Mapping) {
    let Mapping { begin, end, bias, page_base, pages_and_kind } = *from;
    into.begin = begin;
    into.end = end;
    into.bias = bias;
    into.page_base = page_base;
    into.pages_and_kind = pages_and_kind;
}
