//! Call stacks: taken, hashed, and sent once.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::helpers::generated::bpf_get_stack;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{End, Kind, MAX_FRAMES, STACK_FAILED, STACK_FIRST, STACK_NOT_TAKEN, StackRecord};

use crate::thread::Thread;
use crate::{atomic, emit, loss, settings};

/// Walk the user's stack, not the kernel's (`BPF_F_USER_STACK`, include/uapi/linux/bpf.h).
const USER_STACK: u64 = 1 << 8;

const SCRATCH_SLOTS: usize = 2048;
const SCRATCH_TRIES: u32 = 4;

/// A stack's record as it is sent: the frames lie right behind its head.
#[repr(C)]
pub struct Scratch {
    busy: u64,
    pub record: StackRecord,
    pub frames: [u64; MAX_FRAMES],
}

/// Per-CPU memory would be overwritten by whoever preempts the program; a slot is the thread's until it is released.
#[btf_map]
static SCRATCH: Array<Scratch, SCRATCH_SLOTS> = Array::new();

/// The stacks whose frames have been sent. What it forgets is sent again.
#[btf_map]
static SENT: LruHashMap<u64, u32, 65536> = LruHashMap::new();

/// Takes the stack at `context`, sends its frames through `ring` if they are new, and returns its id.
#[inline(always)]
pub fn take(context: &impl EbpfContext, thread: Thread, ring: u32) -> u64 {
    if settings::max_depth() == 0 {
        return STACK_NOT_TAKEN;
    }
    for attempt in 0..SCRATCH_TRIES {
        let index = thread.tid.wrapping_add(attempt) & (SCRATCH_SLOTS as u32 - 1);
        let Some(scratch) = SCRATCH.get_ptr_mut(index) else { return STACK_FAILED };
        // SAFETY: a map value's pointer; `busy` is its first word.
        if unsafe { atomic::exchange(scratch.cast(), 1) } == 0 {
            // SAFETY: the slot is ours until it is released below.
            let id = walk(context, thread, ring, unsafe { &mut *scratch });
            // SAFETY: as above.
            unsafe { atomic::exchange(scratch.cast(), 0) };
            return id;
        }
    }
    loss::count(context, LossReason::ScratchBusy, 1);
    STACK_FAILED
}

#[inline(always)]
fn walk(context: &impl EbpfContext, thread: Thread, ring: u32, scratch: &mut Scratch) -> u64 {
    let wanted = settings::max_depth();
    // One frame more than wanted tells whether the stack goes on.
    let asked = if wanted as usize >= MAX_FRAMES { MAX_FRAMES as u32 } else { wanted + 1 };
    // SAFETY: the buffer holds MAX_FRAMES words, and `asked` is at most that.
    let written = unsafe { bpf_get_stack(context.as_ptr(), scratch.frames.as_mut_ptr().cast(), asked * 8, USER_STACK) };
    if written <= 0 {
        loss::count(context, LossReason::StackFailed, 1);
        return STACK_FAILED;
    }
    let got = (written as u32 / 8).min(MAX_FRAMES as u32);
    let truncated = got > wanted || got as usize == MAX_FRAMES;
    let frames = got.min(wanted);
    let id = hash(thread.pid, &scratch.frames, frames as usize);
    // SAFETY: only the presence is asked for.
    if unsafe { SENT.get(&id) }.is_none() {
        scratch.record = StackRecord {
            header: thread.header(Kind::Stack),
            stack: id,
            frames,
            end: if truncated { End::Truncated } else { End::FramePointers } as u32,
        };
        // Marked only once it is sent, so that a lost stack is sent again. A full table (-1) only costs a repetition.
        if emit::stack(context, ring, scratch, frames) {
            let _ = SENT.insert(&id, 1u32, 0);
        }
    }
    id
}

/// Mixes the process and the frames' addresses. The multiplier is that of Steele and Vigna, "Computationally easy,
/// spectrally good multipliers" (2021), for 64 bits.
#[inline(always)]
fn hash(pid: u32, frames: &[u64; MAX_FRAMES], count: usize) -> u64 {
    const MULTIPLIER: u64 = 0xD134_2543_DE82_EF95;
    let mut mixed = (pid as u64 + 1).wrapping_mul(MULTIPLIER);
    for index in 0..MAX_FRAMES {
        if index >= count {
            break;
        }
        mixed = (mixed ^ frames[index]).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> 32;
    }
    if mixed < STACK_FIRST { mixed + STACK_FIRST } else { mixed }
}
