//! Stack walks by unwind tables: `memtrace-unwind` on top of the maps.

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
pub use self::vma::{prefetch_executable, stack_limit};
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
    /// There was no walk. With an `Option` the compiler could save uninitialised fields, which the verifier refuses.
    pub const FAILED: Self = Self { frames: 0, hash: 0, end: 0 };
}

/// Walks the stack from `origin`, in the scratch memory of `slot`, which the caller has claimed.
#[inline(always)]
pub fn walk(slot: u32, pid: u32, process: Process, origin: &impl Origin, seed: u64) -> Walked {
    let Some(Scratch { walk, registers, .. }) = Scratch::get(slot) else { return Walked::FAILED };
    begin(walk, pid, process, origin, registers, seed);
    let mut next = SIMPLE_STEPS;
    for _ in 0..STEPS {
        // Each function looks the slot up itself, so that no reference to it is held across the call.
        if next == SIMPLE_STEPS {
            unwind_simple_steps(slot);
        }
        next = unwind_step(slot);
        if next == NO_STEP {
            break;
        }
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
    // An empty mapping: it contains no address. `begin` is not 0, because the compiler would clear both fields with a call
    // of `memset`.
    state.mapping.begin = u64::MAX;
    state.mapping.end = 0;
    state.end = End::Truncated as u32;
}

/// One step for each frame, one to see that there are more, and one for each return address that a uretprobe replaced.
const STEPS: usize = MAX_FRAMES + 1 + MAX_URETPROBE_DEPTH as usize;

/// Results of [`unwind_step`]: the walk has ended, goes on with a step of any kind, or with one that can be simple.
const NO_STEP: u64 = 0;
const ANY_STEP: u64 = 1;
const SIMPLE_STEPS: u64 = 2;

/// Takes one step in the scratch memory of `slot`. Returns what comes next.
///
/// A global function is verified once, for any argument ("Global functions", Documentation/bpf/verifier.rst). The verifier
/// does not follow the surrounding loop through it, so the walk may have any length. `bpf_loop` makes each frame slower.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_step(slot: u32) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return NO_STEP };
    let state = &mut scratch.walk;
    let mut memory = WindowedMemory::new(&mut state.window, UserMemory);
    let mut table = Tables::new(slot);
    match state.walk.step(&mut scratch.frames, &mut memory, &mut table) {
        // Callers of a function that is not cached are often not cached either.
        ControlFlow::Continue(()) if table.was_cached && state.walk.can_be_simple() => SIMPLE_STEPS,
        ControlFlow::Continue(()) => ANY_STEP,
        ControlFlow::Break(end) => {
            state.end = end as u32;
            NO_STEP
        }
    }
}

/// Takes simple steps in the scratch memory of `slot`. It is a function of its own, so that its stack is not added to that of the
/// look-ups, which are the deepest calls. Returns 0: a global function has to return a number.
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

/// Forgets the process's mappings, because it runs another executable or has exited.
#[inline(always)]
pub fn forget_process(pid: u32) {
    processes::forget(pid);
    exec_vmas::forget(pid);
}

/// Gives a new process its parent's mappings.
#[inline(always)]
pub fn copy_process(parent: u32, child: u32) {
    processes::copy(parent, child);
}
