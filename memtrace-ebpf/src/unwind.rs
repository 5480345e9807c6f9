//! Stack walks by unwind tables: runs the walk of `memtrace-unwind` with the tables in the maps.

mod exec_vmas;
mod objects;
mod processes;
mod return_instances;
mod tables;
mod vma;
mod vma_tree;

use core::mem::MaybeUninit;
use core::ops::ControlFlow;

use memtrace_common::unwind::Process;
use memtrace_common::wire::{End, MAX_FRAMES};
use memtrace_unwind::{ReadMemory, WindowedMemory};

pub use self::exec_vmas::{add as add_exec_vma, next_instruction, prefetch};
pub use self::processes::{get as process, seed};
use self::tables::{CachedRules, Tables};
pub use self::vma::{main_stack_start, prefetch_executable, stack_limit};
use crate::limits::MAX_URETPROBE_DEPTH;
use crate::origin::Origin;
use crate::registers::Registers;
use crate::scratch::{Scratch, WalkState};
use crate::settings;
use crate::user_memory::UserMemory;

/// Returns true if the word at `address` of the current process can be read.
#[inline(always)]
pub fn is_readable(address: u64) -> bool {
    UserMemory.read(address, &mut [0])
}

/// Result of a walk.
#[derive(Clone, Copy)]
pub struct Walked {
    /// Number of frames.
    pub frames: u32,
    /// Hash of the seed and the frames.
    pub hash: u64,
    /// An [`End`]; 0 if there was no walk.
    pub end: u32,
}

impl Walked {
    /// Result if there was no walk. With an `Option` the compiler could spill uninitialised fields, which the
    /// verifier refuses.
    pub const FAILED: Self = Self { frames: 0, hash: 0, end: 0 };
}

/// Walks the stack from `origin`, in the scratch memory of `slot`, which the caller has claimed.
#[inline(always)]
pub fn walk(slot: u32, pid: u32, process: Process, origin: &impl Origin, seed: u64) -> Walked {
    let Some(Scratch { walk, registers, .. }) = Scratch::get(slot) else { return Walked::FAILED };
    begin(walk, pid, process, origin, registers, seed);
    let mut next = SIMPLE_STEPS;
    for _ in 0..STEPS {
        // Each function looks up the slot itself, so that no pointer is kept across the call.
        if next == SIMPLE_STEPS {
            unwind_simple_steps(slot);
        }
        next = unwind_step(slot);
        if next == NO_STEP {
            break;
        }
    }
    if Scratch::get(slot).is_some_and(|scratch| scratch.walk.end == End::NoRow as u32) {
        unwind_end_without_row(slot);
    }
    match Scratch::get(slot) {
        Some(Scratch { walk: WalkState { walk, end, .. }, .. }) => {
            Walked { frames: walk.count(), hash: walk.hash(*end), end: *end }
        }
        None => Walked::FAILED,
    }
}

#[inline(always)]
fn begin(
    state: &mut WalkState,
    pid: u32,
    process: Process,
    origin: &impl Origin,
    registers: &mut MaybeUninit<Registers>,
    seed: u64,
) {
    state.window.forget();
    state.walk.begin(&origin.begin(registers, &mut state.window), settings::max_depth(), seed);
    state.pid = pid;
    state.process = process;
    // An empty mapping, which contains no address. With 0 for `begin`, the compiler would clear both fields by a call
    // of `memset`.
    state.mapping.begin = u64::MAX;
    state.mapping.end = 0;
    state.end = End::Truncated as u32;
}

/// Maximum number of steps: one for each frame, one that finds too many frames, and one for each return address that
/// a uretprobe has replaced.
const STEPS: usize = MAX_FRAMES + 1 + MAX_URETPROBE_DEPTH as usize;

/// Result of [`unwind_step`]: the walk has ended.
const NO_STEP: u64 = 0;
/// Result of [`unwind_step`]: the walk continues with a general step.
const ANY_STEP: u64 = 1;
/// Result of [`unwind_step`]: the walk continues, and simple steps may be possible.
const SIMPLE_STEPS: u64 = 2;

/// Takes one general step of the walk in the scratch memory of `slot`. Returns the kind of the next step.
///
/// The verifier checks a global function once, for any argument ("Global functions", Documentation/bpf/verifier.rst).
/// It does not follow the calling loop into the function, so the walk may have any length. With `bpf_loop`, each
/// frame would take longer.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_step(slot: u32) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return NO_STEP };
    let state = &mut scratch.walk;
    let mut memory = WindowedMemory::new(&mut state.window, UserMemory);
    let mut table = Tables::new(slot);
    match state.walk.step(&mut scratch.frames, &mut memory, &mut table) {
        // If the rule of a function is not cached, the rules of its callers are often not cached either.
        ControlFlow::Continue(()) if table.was_cached && state.walk.can_be_simple() => SIMPLE_STEPS,
        ControlFlow::Continue(()) => ANY_STEP,
        ControlFlow::Break(end) => {
            state.end = end as u32;
            NO_STEP
        }
    }
}

/// Takes simple steps of the walk in the scratch memory of `slot`. The code is in a function of its own, so that its
/// stack frame is not added to the frames of the look-ups, which are the deepest calls. Returns 0, because a global
/// function must return a number.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_simple_steps(slot: u32) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return 0 };
    let WalkState { walk, process, window, .. } = &mut scratch.walk;
    let mut memory = WindowedMemory::new(window, UserMemory);
    if let Some(rules) = CachedRules::new(process.generation) {
        walk.simple_steps(&mut scratch.frames, &mut memory, &rules);
    }
    0
}

/// Corrects the end of the walk in the scratch memory of `slot`, which has ended at an address without a row: the
/// stack may be complete. The code is in a function of its own, so that each program contains it once. Returns 0,
/// because a global function must return a number.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_end_without_row(slot: u32) -> u64 {
    let stack_start = vma::main_stack_start();
    let Some(scratch) = Scratch::get(slot) else { return 0 };
    let WalkState { walk, end, .. } = &mut scratch.walk;
    *end = walk.end_without_row(stack_start) as u32;
    0
}

/// Removes the mappings of a process that exits or has called exec.
#[inline(always)]
pub fn forget_process(pid: u32) {
    processes::forget(pid);
    exec_vmas::forget(pid);
}

/// Copies the entry of the parent's mappings for a forked process.
#[inline(always)]
pub fn copy_process(parent: u32, child: u32) {
    processes::copy(parent, child);
}
