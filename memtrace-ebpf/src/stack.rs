//! Call stacks: taken, hashed, and sent once.
//!
//! A process for which there are tables is walked by them, any other by the kernel's own walk along frame pointers.

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_get_stack, bpf_probe_read_kernel, bpf_task_pt_regs};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{End, Kind, MAX_FRAMES, STACK_FAILED, STACK_FIRST, STACK_NOT_TAKEN, StackRecord};
use memtrace_unwind::{Begin, mix};

use crate::atomic::first;
use crate::registers::Registers;
use crate::thread::{Thread, since_start};
use crate::unwind::Walked;
use crate::{atomic, emit, loss, settings, unwind};

/// Walk the user's stack, not the kernel's (`BPF_F_USER_STACK`, include/uapi/linux/bpf.h).
const USER_STACK: u64 = 1 << 8;

/// The most frames that the kernel's own walk gives by default (`PERF_MAX_STACK_DEPTH`, include/uapi/linux/perf_event.h).
const KERNEL_FRAMES: u32 = 127;

/// How many stacks can be taken at the same time.
pub const SLOTS: usize = 2048;
const SCRATCH_TRIES: u32 = 4;

/// A stack's record as it is sent: the frames lie right behind its head.
#[repr(C)]
pub struct Scratch {
    busy: u64,
    pub record: StackRecord,
    pub frames: [u64; MAX_FRAMES],
    pub unwind: unwind::State,
    /// Room for the registers of who was interrupted.
    pub registers: MaybeUninit<Registers>,
}

/// Per-CPU memory would be overwritten by whoever preempts the program; a slot is the thread's until it is released.
#[btf_map]
static SCRATCH: Array<Scratch, SLOTS> = Array::new();

/// The stacks whose frames have been sent. What it forgets is sent again.
#[btf_map]
static SENT: LruHashMap<u64, u32, 65536> = LruHashMap::new();

impl Scratch {
    /// The scratch memory at `slot`, for who has taken it.
    #[inline(always)]
    pub fn at(slot: u32) -> Option<&'static mut Self> {
        // SAFETY: a map value's pointer, and whoever holds the slot is alone with it.
        SCRATCH.get_ptr_mut(slot).map(|scratch| unsafe { &mut *scratch })
    }
}

/// To where a function returns: the address, and the stack pointer when it is there.
#[derive(Clone, Copy)]
pub struct Caller {
    pub ip: u64,
    pub stack_pointer: u64,
}

/// From where a stack is walked.
pub trait Origin {
    /// Where the walk begins; `room` may be used for what it takes to know.
    fn begin<'room>(&'room self, room: &'room mut MaybeUninit<Registers>) -> impl Begin + 'room;
}

/// A function that returns with these registers.
pub struct Returning<'context> {
    pub registers: &'context Registers,
    pub caller: Caller,
}

/// A thread that was interrupted, or has called the kernel: where in the kernel's memory its registers are.
pub struct Interrupted {
    pub registers: u64,
}

impl Interrupted {
    /// The current thread, with the registers with which it has entered the kernel (Linux 5.15).
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the task is the current one, as the helper wants it.
        Self { registers: unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64 }
    }
}

impl Origin for Returning<'_> {
    #[inline(always)]
    fn begin<'room>(&'room self, _room: &'room mut MaybeUninit<Registers>) -> impl Begin + 'room {
        unwind::AtReturn { registers: self.registers, caller: self.caller }
    }
}

impl Origin for Interrupted {
    #[inline(always)]
    fn begin<'room>(&'room self, room: &'room mut MaybeUninit<Registers>) -> impl Begin + 'room {
        // SAFETY: the helper writes as much as there is room for; where it cannot read it writes zeros.
        unsafe {
            bpf_probe_read_kernel(
                room.as_mut_ptr().cast(),
                size_of::<Registers>() as u32,
                self.registers as *const c_void,
            );
        }
        // SAFETY: it has been written, and any bits are registers.
        unwind::AtInstruction { registers: unsafe { room.assume_init_ref() } }
    }
}

/// Takes the stack that `origin` says, sends its frames through `ring` if they are new, and returns its id.
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

/// Not the number of a slot.
pub const NO_SLOT: u32 = SLOTS as u32;

/// Scratch memory of the thread's own, until it is released: its slot, or [`NO_SLOT`] where none is free.
///
/// It is no function that is given what to do meanwhile: such a function would have a frame of its own in the stack, which
/// has no room for one.
#[inline(always)]
pub fn claim(thread: Thread) -> u32 {
    for attempt in 0..SCRATCH_TRIES {
        let slot = thread.tid.wrapping_add(attempt) & (SLOTS as u32 - 1);
        let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) else { break };
        // SAFETY: a map value's pointer; `busy` is its first word.
        if unsafe { atomic::take(busy, first::SCRATCH + slot, 1) } {
            return slot;
        }
    }
    NO_SLOT
}

/// Gives scratch memory back that was claimed.
#[inline(always)]
pub fn release(slot: u32) {
    if let Some(busy) = SCRATCH.get_ptr_mut(slot).map(|scratch| scratch.cast::<u64>()) {
        // SAFETY: as above.
        unsafe { atomic::give_back(busy, first::SCRATCH + slot) };
    }
}

#[inline(always)]
fn identify(context: &impl EbpfContext, origin: &impl Origin, thread: Thread, ring: u32, slot: u32) -> u64 {
    // Frames are addresses in a process as it is mapped now, and so is a stack.
    let walked = match unwind::process(thread.pid) {
        Some(process) => {
            let seed = unwind::seed(thread.pid, &process);
            unwind::walk(slot, thread.pid, process, origin, seed)
        }
        None => by_frame_pointers(context, slot, origin, unwind::unmapped_seed(thread.pid)),
    };
    let Walked { frames, hash, end } = walked;
    if end == 0 {
        loss::count(context, LossReason::StackFailed, 1);
        return STACK_FAILED;
    }
    let id = if hash < STACK_FIRST { hash + STACK_FIRST } else { hash };
    // SAFETY: only the presence is asked for.
    if unsafe { SENT.get(&id) }.is_none()
        && let Some(scratch) = Scratch::at(slot)
    {
        scratch.record =
            StackRecord { header: thread.header(Kind::Stack), stack: id, frames, end, taken: since_start() };
        // Marked only once it is sent, so that a lost stack is sent again. A full table (-1) only costs a repetition.
        if emit::stack(context, ring, scratch, frames) {
            let _ = SENT.insert(&id, 1u32, 0);
        }
    }
    id
}

/// The first frame of a walk that begins there: the address behind what was running.
#[inline(always)]
fn leaf(from: &impl Begin) -> u64 {
    if from.ip_is_return() { from.ip() } else { from.ip().wrapping_add(1) }
}

#[inline(always)]
fn by_frame_pointers(context: &impl EbpfContext, slot: u32, origin: &impl Origin, seed: u64) -> Walked {
    let Some(scratch) = Scratch::at(slot) else { return Walked::FAILED };
    let wanted = settings::max_depth();
    // One frame more than wanted tells whether the stack goes on.
    let asked = if wanted >= KERNEL_FRAMES { KERNEL_FRAMES } else { wanted + 1 };
    // SAFETY: the buffer holds MAX_FRAMES words, and `asked` is less than that.
    let written = unsafe { bpf_get_stack(context.as_ptr(), scratch.frames.as_mut_ptr().cast(), asked * 8, USER_STACK) };
    if written <= 0 {
        return Walked::FAILED;
    }
    let got = (written as u32 / 8).min(KERNEL_FRAMES);
    let truncated = got > wanted || got == KERNEL_FRAMES;
    let end = if truncated { End::Truncated } else { End::FramePointers } as u32;
    let frames = got.min(wanted);
    // At the return instruction itself, the kernel's first frame is the function that is being left.
    scratch.frames[0] = leaf(&origin.begin(&mut scratch.registers));
    let mut hash = mix(0, seed);
    for index in 0..KERNEL_FRAMES {
        if index >= frames {
            break;
        }
        hash = mix(hash, scratch.frames[index as usize]);
    }
    Walked { frames, hash: mix(hash, end as u64), end }
}
