//! Stack walks by tables: the walk of `memtrace-unwind` over the maps.

mod exec_vmas;
mod objects;
mod processes;
mod return_instances;
mod tables;
pub mod vma;

use core::ffi::c_void;
use core::ops::ControlFlow;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use memtrace_common::unwind::{Mapping, Process};
use memtrace_common::wire::{End, MAX_FRAMES};
use memtrace_unwind::{Begin, Read, Walk, Window, Windowed};

use crate::registers::{self, Registers};
use crate::settings;
use crate::stack::{Caller, Origin, Scratch};

/// A walk in progress, in a thread's scratch memory.
#[repr(C)]
pub struct State {
    walk: Walk,
    process: Process,
    /// The mapping that was hit last.
    last: Mapping,
    /// What the kernel has said last.
    mapped: vma::Mapped,
    pid: u32,
    /// Why the walk ended: an [`End`].
    end: u32,
    window: Window,
}

struct User;

impl Read for User {
    #[inline(always)]
    fn read(&mut self, address: u64, into: &mut [u64]) -> bool {
        let bytes = size_of_val(into) as u32;
        // SAFETY: the helper writes as many bytes as `into` has, and checks the address.
        unsafe { bpf_probe_read_user(into.as_mut_ptr().cast(), bytes, address as *const c_void) == 0 }
    }
}

pub use exec_vmas::{mapped, next_instruction, settled};
pub use processes::{copy, forget, of as process, seed, unmapped_seed};
pub use vma::{announce, read_object};

/// What a walk found: how many frames, the hash of its seed and them, and how it ended.
#[derive(Clone, Copy)]
pub struct Walked {
    pub frames: u32,
    pub hash: u64,
    /// An [`End`]; 0 where there was no walk.
    pub end: u32,
}

impl Walked {
    /// There was no walk. An `Option` would leave the compiler free to save what is not there, which the verifier
    /// refuses.
    pub const FAILED: Self = Self { frames: 0, hash: 0, end: 0 };
}

/// Walks from where `origin` says, in the scratch memory of `slot`, which is the caller's.
#[inline(always)]
pub fn walk(slot: u32, pid: u32, process: Process, origin: &impl Origin, seed: u64) -> Walked {
    let Some(Scratch { unwind, registers, .. }) = Scratch::at(slot) else { return Walked::FAILED };
    begin(unwind, pid, process, &origin.begin(registers), seed);
    for _ in 0..STEPS {
        // The step looks the slot up by itself, so that no reference to it may be held over the call.
        if unwind_step(slot) != 0 {
            break;
        }
    }
    match Scratch::at(slot) {
        Some(Scratch { unwind: State { walk, end, .. }, .. }) => {
            Walked { frames: walk.count(), hash: walk.hash(*end), end: *end }
        }
        None => Walked::FAILED,
    }
}

#[inline(always)]
fn begin(state: &mut State, pid: u32, process: Process, from: &impl Begin, seed: u64) {
    state.walk.begin(from, settings::max_depth(), seed);
    state.pid = pid;
    state.process = process;
    // It holds no address.
    state.last.begin = 0;
    state.last.end = 0;
    state.end = End::Truncated as u32;
    state.window.forget();
}

/// A step for each frame, one to see that there are more, and one for each return address that was exchanged
/// (`MAX_URETPROBE_DEPTH`, include/linux/uprobes.h).
const STEPS: usize = MAX_FRAMES + 1 + return_instances::MOST as usize;

/// Takes one step in the scratch memory of `slot`; returns 0 while there are more.
///
/// Being global, the function is verified by itself, once for every slot that there could be ("Global functions",
/// Documentation/bpf/verifier.rst; Linux 5.6). So the verifier need not follow the loop around it through the step, and
/// the walk may be as long as it likes, on kernels without `bpf_loop` too.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_step(slot: u32) -> u64 {
    let Some(scratch) = Scratch::at(slot) else { return 1 };
    let state = &mut scratch.unwind;
    let mut memory = Windowed::new(&mut state.window, User);
    let mut table = tables::Tables { slot, generation: state.process.generation };
    match state.walk.step(&mut scratch.frames, &mut memory, &mut table) {
        ControlFlow::Continue(()) => 0,
        ControlFlow::Break(end) => {
            state.end = end as u32;
            1
        }
    }
}

/// Where a function returns to.
pub struct AtReturn<'context> {
    pub registers: &'context Registers,
    pub caller: Caller,
}

/// Before an instruction, with these registers.
pub struct AtInstruction<'room> {
    pub registers: &'room Registers,
}

impl Begin for AtInstruction<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        registers::instruction(self.registers)
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        false
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, registers::stack_pointer(self.registers), number)
    }
}

impl Begin for AtReturn<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        self.caller.ip
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        true
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, self.caller.stack_pointer, number)
    }
}
